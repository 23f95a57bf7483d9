"""What CUDA finds, by its own library and nothing else: prints one line."""
import ctypes
import os

seen = os.environ.get("CUDA_VISIBLE_DEVICES", "unset")
cuda = ctypes.CDLL("libcuda.so.1")
code = cuda.cuInit(0)
if code != 0:
    name = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(name))
    print(f"CUDA_VISIBLE_DEVICES={seen!r}: cuInit says {name.value.decode()} ({code})")
    raise SystemExit(0)
count = ctypes.c_int()
cuda.cuDeviceGetCount(ctypes.byref(count))
device, context = ctypes.c_int(), ctypes.c_void_p()
made, title = None, ctypes.create_string_buffer(100)
if count.value:
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetName(title, 100, device)
    made = cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)
print(f"CUDA_VISIBLE_DEVICES={seen!r}: {count.value} device(s), {title.value.decode()}, cuCtxCreate says {made}")
