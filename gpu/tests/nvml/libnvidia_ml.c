/* A management library made for the test: two GPUs that feel well, or nothing at all. With LESS it
 * lacks functions, as old ones do; with REFUSES it cannot be initialised. */
#include <stdio.h>
#include <string.h>

typedef struct { int n; } device_t;
static device_t devices[2] = {{0}, {1}};

typedef struct {
  char legacy[16];
  unsigned domain, bus, device, ids, subsystem;
  char bus_id[32];
} pci_t;

typedef struct { unsigned gpu, memory; } rates_t;

typedef struct {
  device_t *device;
  unsigned long long type, data;
  unsigned instance, compute;
} event_t;

enum { SUCCESS = 0, NOT_SUPPORTED = 3, TIMEOUT = 10, DRIVER_NOT_LOADED = 9 };

#ifdef REFUSES
int nvmlInit_v2(void) { return DRIVER_NOT_LOADED; }
#else
int nvmlInit_v2(void) { return SUCCESS; }
#endif
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned n, device_t **device) {
  *device = &devices[n];
  return SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(device_t *device, pci_t *pci) {
  memset(pci, 0, sizeof *pci);
  snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", 0x81 + device->n);
  return SUCCESS;
}
int nvmlDeviceGetTemperature(device_t *device, int sensor, unsigned *value) {
  *value = 40 + device->n + sensor;
  return SUCCESS;
}
int nvmlDeviceGetPowerUsage(device_t *device, unsigned *value) {
  *value = 250500;
  return device->n == 0 ? SUCCESS : NOT_SUPPORTED;
}
#ifndef LESS
int nvmlDeviceGetTotalEnergyConsumption(device_t *device, unsigned long long *value) {
  *value = 5000000000ull + device->n;
  return SUCCESS;
}
int nvmlDeviceGetClockInfo(device_t *device, int kind, unsigned *value) {
  *value = 1000 * kind + device->n;
  return SUCCESS;
}
int nvmlDeviceGetTotalEccErrors(device_t *device, int kind, int counter, unsigned long long *value) {
  *value = 10 * kind + counter + device->n;
  return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(device_t *device, rates_t *rates) {
  rates->gpu = 50 + device->n;
  rates->memory = 0;
  return SUCCESS;
}
static int waited;
int nvmlEventSetCreate(void **set) { *set = &waited; return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlDeviceRegisterEvents(device_t *device, unsigned long long types, void *set) {
  (void)device, (void)set;
  return types == 8 ? SUCCESS : NOT_SUPPORTED;
}
int nvmlEventSetWait_v2(void *set, event_t *event, unsigned ms) {
  (void)set, (void)ms;
  if (waited++ == 2) return TIMEOUT;
  memset(event, 0, sizeof *event);
  event->device = &devices[1];
  event->type = 8;
  event->data = waited == 1 ? 79 : 31;
  return SUCCESS;
}
#endif
