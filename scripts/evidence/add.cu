// Adds two vectors on the GPU and says what came out.
#include <cstdio>

__global__ void add(const float *a, const float *b, float *sum, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) sum[i] = a[i] + b[i];
}

static bool failed(const char *what, cudaError_t error) {
    if (error != cudaSuccess) printf("%s: %s\n", what, cudaGetErrorString(error));
    return error != cudaSuccess;
}

int main() {
    int devices = 0;
    if (failed("devices", cudaGetDeviceCount(&devices))) return 1;
    cudaDeviceProp properties;
    if (failed("properties", cudaGetDeviceProperties(&properties, 0))) return 1;
    const int count = 1 << 20;
    float *a, *b, *sum;
    if (failed("memory", cudaMallocManaged(&a, count * sizeof(float)))) return 1;
    if (failed("memory", cudaMallocManaged(&b, count * sizeof(float)))) return 1;
    if (failed("memory", cudaMallocManaged(&sum, count * sizeof(float)))) return 1;
    for (int i = 0; i < count; i++) a[i] = 1.0f, b[i] = 2.0f;
    add<<<(count + 255) / 256, 256>>>(a, b, sum, count);
    if (failed("kernel", cudaDeviceSynchronize())) return 1;
    long wrong = 0;
    for (int i = 0; i < count; i++) wrong += sum[i] != 3.0f;
    printf("%d device, %s: %d sums, %ld wrong\n", devices, properties.name, count, wrong);
    return wrong != 0;
}
