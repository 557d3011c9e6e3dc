// A CUDA driver without hardware, for tests: the functions that gpu/src/cuda calls, over the SIMT
// executor. Signatures and statuses as in NVIDIA's driver API reference. It checks what it is
// given, so that what passes here is at least not refused at the door of a real driver.
//
// Built as libcuda.so by gpu/simt/make_driver.sh, with the kernels inside.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "executor.h"

enum Status {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  INVALID_PTX = 218,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ALREADY_REGISTERED = 712,
  NOT_REGISTERED = 713,
  LAUNCH_FAILED = 719,
};

struct Kernel {
  const char *name;
  simt_kernel run;
  uint32_t params_bytes, threads;
  // Its blocks wait for the host.
  bool stays;
};

// Written by make_driver.sh.
#include "driver_kernels.h"

namespace {

struct Launch {
  const Kernel *kernel;
  uint32_t blocks, threads, shared_bytes;
  std::vector<uint64_t> params;
};

// Work in order, on a thread of its own.
struct Stream {
  std::mutex lock;
  std::condition_variable more;
  std::deque<std::function<int()>> work;
  int pending = 0, failed = OK;
  bool over = false;
  std::thread thread;

  Stream() : thread([this] { serve(); }) {}

  void serve() {
    std::unique_lock hold(lock);
    for (;;) {
      more.wait(hold, [this] { return over || !work.empty(); });
      if (work.empty()) return;
      auto job = std::move(work.front());
      work.pop_front();
      hold.unlock();
      int status = job();
      hold.lock();
      if (status != OK) failed = status;
      pending--;
    }
  }

  void add(std::function<int()> job) {
    std::lock_guard hold(lock);
    work.push_back(std::move(job));
    pending++;
    more.notify_one();
  }
};

std::mutex state;
bool initialized = false;
int retained = 0;
thread_local void *current = nullptr;
char context_handle;
std::map<uint64_t, size_t> memory, registered;
std::map<std::string, std::pair<int, int>> failures;
size_t memory_left = size_t(1) << 33;

// Whether this process is the first that comes so far: it makes the file.
bool is_first(const std::string &file) {
  int made = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (made >= 0) close(made);
  return made >= 0;
}

// For programs that cannot call gnomon_driver_plan: GNOMON_DRIVER_PLAN is "CALL STATUS AFTER FILE".
// In the first process that gets so far, which makes FILE, CALL answers STATUS from then on; with a
// status of 0 the process ends by a signal.
int planned_from_outside(const char *call) {
  struct Plan {
    std::string call, file;
    int status = OK, after = 0;
    bool on = false;
    Plan() {
      const char *text = getenv("GNOMON_DRIVER_PLAN");
      if (text) std::istringstream(text) >> call >> status >> after >> file;
    }
  };
  static Plan plan;
  if (plan.call != call || plan.after-- > 0) return OK;
  if (!plan.on && !is_first(plan.file)) plan.call.clear();
  if (plan.call.empty()) return OK;
  plan.on = true;
  if (plan.status == OK) abort();
  return plan.status;
}

// What the test wants this call to answer, or OK.
int planned(const char *call) {
  std::lock_guard hold(state);
  if (int status = planned_from_outside(call)) return status;
  auto found = failures.find(call);
  if (found == failures.end() || found->second.second-- > 0) return OK;
  return found->second.first;
}

int enter(const char *call) {
  if (int status = planned(call)) return status;
  if (!initialized) return NOT_INITIALIZED;
  return current == &context_handle && retained > 0 ? OK : INVALID_CONTEXT;
}

int run(const Launch &launch) {
  char error[256];
  auto part = [&](uint32_t first, uint32_t count) {
    simt_launch one = {launch.kernel->run, launch.params.data(), launch.blocks, first, count,
                       launch.threads, launch.shared_bytes, 0};
    if (simt_run(&one, error, sizeof error) == 0) return int(OK);
    fprintf(stderr, "%s: %s\n", launch.kernel->name, error);
    return int(LAUNCH_FAILED);
  };
  if (!launch.kernel->stays) return part(0, launch.blocks);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < launch.blocks; i++) threads.emplace_back([&part, i] { part(i, 1); });
  for (auto &thread : threads) thread.join();
  return OK;
}

int make_launch(Launch &launch, const Kernel *kernel, const unsigned grid[3],
                const unsigned block[3], unsigned shared_bytes, void **params, void **extra) {
  if (!kernel || !params || !params[0] || extra) return INVALID_VALUE;
  if (!grid[0] || grid[1] != 1 || grid[2] != 1 || block[1] != 1 || block[2] != 1)
    return INVALID_VALUE;
  // As many as the kernel's __launch_bounds__ says, and what it may have of shared memory unasked.
  if (block[0] != kernel->threads || shared_bytes > 48 << 10) return INVALID_VALUE;
  launch = {kernel, grid[0], block[0], shared_bytes, {}};
  launch.params.resize((kernel->params_bytes + 7) / 8);
  memcpy(launch.params.data(), params[0], kernel->params_bytes);
  return OK;
}

}  // namespace

extern "C" {

// For tests: `call` answers `status` from its `after`-th time on; a status of 0 ends that.
void gnomon_driver_plan(const char *call, int status, int after) {
  std::lock_guard hold(state);
  if (status == OK) failures.erase(call);
  else failures[call] = {status, after};
}
// For tests: what is taken and not given back, or registered and not undone.
size_t gnomon_driver_held() {
  std::lock_guard hold(state);
  return memory.size() + registered.size();
}

int cuInit(unsigned flags) {
  if (int status = planned("cuInit")) return status;
  initialized = true;
  return flags ? INVALID_VALUE : OK;
}
int cuDriverGetVersion(int *version) {
  *version = planned("old") ? 12040 : 13000;
  return OK;
}
int cuGetErrorName(int status, const char **name) {
  switch (status) {
    case 2: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return OK;
    case 700: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return OK;
    case 719: *name = "CUDA_ERROR_LAUNCH_FAILED"; return OK;
    case 218: *name = "CUDA_ERROR_INVALID_PTX"; return OK;
    default: *name = nullptr; return INVALID_VALUE;
  }
}
int cuDeviceGetCount(int *count) {
  *count = 1;
  return OK;
}
int cuDeviceGet(int *device, int ordinal) {
  *device = 7;
  return ordinal == 0 ? OK : INVALID_DEVICE;
}
int cuDeviceGetName(char *name, int bytes, int device) {
  snprintf(name, bytes, "SIMT executor as a driver");
  return device == 7 ? OK : INVALID_DEVICE;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  *bytes = memory_left;
  return device == 7 ? OK : INVALID_DEVICE;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  // Multiprocessors, maps host memory, unified addressing, compute capability.
  const std::map<int, int> known = {{16, 4}, {19, 1}, {41, 1}, {75, 9}, {76, 0}};
  auto found = known.find(attribute);
  if (device != 7 || found == known.end()) return INVALID_VALUE;
  *value = found->second;
  return OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  if (device != 7) return INVALID_DEVICE;
  retained++;
  *context = &context_handle;
  return OK;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  if (device != 7 || retained == 0) return INVALID_CONTEXT;
  retained--;
  return OK;
}
int cuCtxSetCurrent(void *context) {
  if (context != &context_handle) return INVALID_CONTEXT;
  current = context;
  return OK;
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned options, int *names,
                       void **values) {
  if (int status = enter("cuModuleLoadDataEx")) {
    for (unsigned i = 0; i + 1 < options; i++)
      if (names[i] == 5 && names[i + 1] == 6)
        snprintf(static_cast<char *>(values[i]), size_t(values[i + 1]), "ptxas says no");
    return status;
  }
  // A copy of the text stands for the module.
  const char *text = static_cast<const char *>(image);
  if (!strstr(text, ".version 8.") || !strstr(text, ".target sm_75")) return INVALID_PTX;
  *module = strdup(text);
  return OK;
}
int cuModuleUnload(void *module) {
  free(module);
  return enter("cuModuleUnload");
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  if (int status = enter("cuModuleGetFunction")) return status;
  std::string entry = std::string(".visible .entry ") + name + "(";
  if (!strstr(static_cast<char *>(module), entry.c_str())) return NOT_FOUND;
  for (const Kernel &kernel : KERNELS)
    if (!strcmp(kernel.name, name)) {
      *function = const_cast<Kernel *>(&kernel);
      return OK;
    }
  return NOT_FOUND;
}
int cuFuncLoad(void *function) { return function ? enter("cuFuncLoad") : INVALID_HANDLE; }
int cuFuncSetAttribute(void *function, int, int) {
  return function ? enter("cuFuncSetAttribute") : INVALID_HANDLE;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int, size_t) {
  *blocks = 4;
  return function ? enter("cuOccupancyMaxActiveBlocksPerMultiprocessor") : INVALID_HANDLE;
}

int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
  if (int status = enter("cuMemAlloc")) return status;
  if (bytes == 0) return INVALID_VALUE;
  void *start = bytes < memory_left ? aligned_alloc(256, (bytes + 255) / 256 * 256) : nullptr;
  if (!start) return OUT_OF_MEMORY;
  // Memory comes as it is; who wants zeros fills it.
  memset(start, 0xa5, bytes);
  *at = uint64_t(start);
  std::lock_guard hold(state);
  memory[*at] = bytes;
  return OK;
}
int cuMemFree_v2(uint64_t at) {
  if (int status = enter("cuMemFree")) return status;
  std::lock_guard hold(state);
  if (!memory.erase(at)) return INVALID_VALUE;
  free(reinterpret_cast<void *>(at));
  return OK;
}
int cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags) {
  if (int status = enter("cuMemHostRegister")) return status;
  std::lock_guard hold(state);
  if (!bytes || uint64_t(start) % 4096 || flags != 3) return INVALID_VALUE;
  auto next = registered.lower_bound(uint64_t(start) + bytes);
  if (next != registered.begin() && std::prev(next)->first + std::prev(next)->second > uint64_t(start))
    return ALREADY_REGISTERED;
  registered[uint64_t(start)] = bytes;
  return OK;
}
int cuMemHostUnregister(void *start) {
  if (int status = enter("cuMemHostUnregister")) return status;
  std::lock_guard hold(state);
  return registered.erase(uint64_t(start)) ? OK : NOT_REGISTERED;
}
int cuMemHostGetDevicePointer_v2(uint64_t *at, void *start, unsigned flags) {
  if (int status = enter("cuMemHostGetDevicePointer")) return status;
  std::lock_guard hold(state);
  *at = uint64_t(start);
  return registered.count(*at) && !flags ? OK : INVALID_VALUE;
}

int cuStreamCreate(void **stream, unsigned flags) {
  if (int status = enter("cuStreamCreate")) return status;
  if (flags != 1) return INVALID_VALUE;
  *stream = new Stream;
  return OK;
}
int cuStreamDestroy_v2(void *handle) {
  if (int status = enter("cuStreamDestroy")) return status;
  Stream *stream = static_cast<Stream *>(handle);
  {
    std::lock_guard hold(stream->lock);
    stream->over = true;
    stream->more.notify_one();
  }
  stream->thread.join();
  delete stream;
  return OK;
}
int cuStreamQuery(void *handle) {
  if (int status = enter("cuStreamQuery")) return status;
  Stream *stream = static_cast<Stream *>(handle);
  std::lock_guard hold(stream->lock);
  return stream->failed ? stream->failed : stream->pending ? NOT_READY : OK;
}
int cuMemsetD8Async(uint64_t at, uint8_t value, size_t bytes, void *stream) {
  if (int status = enter("cuMemsetD8Async")) return status;
  static_cast<Stream *>(stream)->add([=] {
    memset(reinterpret_cast<void *>(at), value, bytes);
    return int(OK);
  });
  return OK;
}
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  if (int status = enter("cuMemcpyAsync")) return status;
  static_cast<Stream *>(stream)->add([=] {
    memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
    return int(OK);
  });
  return OK;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  return cuMemcpyAsync(uint64_t(to), from, bytes, stream);
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared_bytes, void *stream, void **params, void **extra) {
  if (int status = enter("cuLaunchKernel")) return status;
  const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  Launch launch;
  int status = make_launch(launch, static_cast<Kernel *>(function), grid, block, shared_bytes,
                           params, extra);
  if (status == OK) static_cast<Stream *>(stream)->add([launch] { return run(launch); });
  return status;
}

struct node_params {
  void *function;
  unsigned grid[3], block[3], shared_bytes;
  void **params, **extra;
  void *kern, *context;
};
int cuGraphCreate(void **graph, unsigned flags) {
  if (int status = enter("cuGraphCreate")) return status;
  *graph = new Launch{};
  return flags ? INVALID_VALUE : OK;
}
int cuGraphAddKernelNode_v2(void **node, void *graph, const void *, size_t n_before,
                            const node_params *params) {
  if (int status = enter("cuGraphAddKernelNode")) return status;
  if (n_before || params->kern || params->context) return INVALID_VALUE;
  *node = graph;
  return make_launch(*static_cast<Launch *>(graph), static_cast<Kernel *>(params->function),
                     params->grid, params->block, params->shared_bytes, params->params,
                     params->extra);
}
int cuGraphInstantiateWithFlags(void **ready, void *graph, unsigned long long flags) {
  if (int status = enter("cuGraphInstantiate")) return status;
  Launch *launch = static_cast<Launch *>(graph);
  if (!launch->kernel || flags) return INVALID_VALUE;
  *ready = new Launch(*launch);
  return OK;
}
int cuGraphDestroy(void *graph) {
  delete static_cast<Launch *>(graph);
  return OK;
}
int cuGraphUpload(void *ready, void *stream) {
  return ready && stream ? enter("cuGraphUpload") : INVALID_HANDLE;
}
int cuGraphLaunch(void *ready, void *stream) {
  if (int status = enter("cuGraphLaunch")) return status;
  Launch launch = *static_cast<Launch *>(ready);
  static_cast<Stream *>(stream)->add([launch] { return run(launch); });
  return OK;
}
int cuGraphExecDestroy(void *ready) {
  delete static_cast<Launch *>(ready);
  return OK;
}
}
