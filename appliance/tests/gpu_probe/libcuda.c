/* A CUDA driver with DEVICES GPUs and no hardware, whose cuInit answers INIT. It has the functions
 * that the probe says it needs and no other. Signatures as in NVIDIA's driver API reference. */
#include <stddef.h>
#include <stdio.h>

int cuInit(unsigned flags) { return flags == 0 ? INIT : 1; }

int cuDriverGetVersion(int *version) {
    *version = 13010;
    return 0;
}

int cuDeviceGetCount(int *count) {
    *count = DEVICES;
    return 0;
}

/* A handle is not its ordinal. */
int cuDeviceGet(int *device, int ordinal) {
    *device = 100 + ordinal;
    return ordinal < DEVICES ? 0 : 101;
}

int cuDeviceGetName(char *name, int len, int device) {
    snprintf(name, len, "Sundial %d", device);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = (size_t)(device - 90) << 30;
    return 0;
}

/* 75 and 76: the two parts of the compute capability. */
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? 9 : 2;
    return attribute == 75 || attribute == 76 ? 0 : 1;
}
