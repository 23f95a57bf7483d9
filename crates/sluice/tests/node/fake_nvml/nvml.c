/* A library that answers as NVML does, from the file that FAKE_NVML names: lines of `KEY.GPU VALUE` or `KEY VALUE`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef void *device;

static long long get(const char *key, long at, long long usual) {
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    char wanted[64], name[64];
    long long value, found = usual;
    if (at < 0) snprintf(wanted, sizeof wanted, "%s", key);
    else snprintf(wanted, sizeof wanted, "%s.%ld", key, at);
    while (file && fscanf(file, "%63s %lld", name, &value) == 2)
        if (!strcmp(name, wanted)) found = value;
    if (file) fclose(file);
    return found;
}

static long at(device d) { return (long)d - 1; }

int nvmlInit_v2(void) { return (int)get("init", -1, 0); }
const char *nvmlErrorString(int status) { return status == 15 ? "GPU is lost" : "Unknown Error"; }
int nvmlDeviceGetCount_v2(u32 *count) { *count = get("count", -1, 2); return 0; }
int nvmlDeviceGetHandleByIndex_v2(u32 index, device *d) {
    if (get("crash", -1, 0)) abort();
    if (get("hang", -1, 0)) pause();
    *d = (device)(long)(index + 1);
    return (int)get("lost", index, 0);
}
int nvmlDeviceGetName(device d, char *text, u32 length) { snprintf(text, length, "NVIDIA Fake"); return 0; }
int nvmlDeviceGetUUID(device d, char *text, u32 length) { snprintf(text, length, "GPU-%ld", at(d)); return 0; }
int nvmlDeviceGetMinorNumber(device d, u32 *minor) { *minor = at(d); return 0; }
/* `fail.N`: the GPU answers some questions and not others. */
int nvmlDeviceGetMemoryInfo(device d, u64 *memory) { if (get("fail", at(d), 0)) return 999; memory[0] = 80ull << 30; memory[1] = 79ull << 30; memory[2] = 1ull << 30; return 0; }
int nvmlDeviceGetUtilizationRates(device d, u32 *rates) { rates[0] = get("util", at(d), 7); rates[1] = 0; return 0; }
int nvmlDeviceGetPowerUsage(device d, u32 *mw) { *mw = 70500; return 0; }
int nvmlDeviceGetTemperature(device d, u32 sensor, u32 *c) { if (get("fail", at(d), 0)) return 999; *c = get("temp", at(d), 40); return 0; }
int nvmlDeviceGetTotalEccErrors(device d, u32 kind, u32 counter, u64 *errors) {
    *errors = get(kind ? "uncorrected" : "corrected", at(d), 0);
    return 0;
}
int nvmlDeviceGetRemappedRows(device d, u32 *a, u32 *b, u32 *pending, u32 *failed) {
    *a = *b = 0;
    *pending = get("pending", at(d), 0);
    *failed = get("failed", at(d), 0);
    return 0;
}
