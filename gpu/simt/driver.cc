// A CUDA driver without hardware, for tests: the functions that gpu/src/cuda calls, over the SIMT
// executor. Signatures and statuses as in NVIDIA's driver API reference. It checks what it is
// given, so that what passes here is at least not refused at the door of a real driver; and it
// makes its users wait where a driver may (machine.h): in one of eight queues, or as many as
// CUDA_DEVICE_MAX_CONNECTIONS says, for one of the device's places for blocks, and for all kernels
// to end before memory is taken, mapped or freed, modules come or go, or local memory grows.
//
// Built as libcuda.so by gpu/simt/make_driver.sh, with the kernels inside.
#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>

#include "kernels/layout.h"
#include "machine.h"

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
  ILLEGAL_ADDRESS = 700,
  ALREADY_REGISTERED = 712,
  NOT_REGISTERED = 713,
  LAUNCH_TIMEOUT = 702,
  LAUNCH_FAILED = 719,
};

struct Kernel {
  const char *name;
  simt_kernel run;
  uint32_t params_bytes, threads;
  // Local memory of a thread.
  uint32_t local_bytes;
  // Its blocks wait for the host.
  bool stays;
};

// Written by make_driver.sh.
#include "driver_kernels.h"

namespace {

// Blocks of any kernel that a multiprocessor runs at once.
constexpr uint32_t BLOCKS_PER_MULTIPROCESSOR = 4;
// What a driver does by itself, and the most that it does.
constexpr uint32_t QUEUES = 8, QUEUES_MAX = 32;
constexpr int HIGHEST_PRIORITY = -5;

// A kernel as a module of one context has it.
struct Function {
  const Kernel *kernel;
  const void *context;
};

struct Memory {
  size_t bytes;
  const void *context;
};

struct Launch {
  const Kernel *kernel;
  const void *context;
  uint32_t blocks, threads, shared_bytes;
  std::vector<uint64_t> params;
};

// Never destroyed: threads may outlive them.
std::mutex &state = *new std::mutex;
bool initialized = false;
// Two devices, of one machine.
constexpr int DEVICES = 2, FIRST_DEVICE = 7;
int retained[DEVICES];
thread_local void *current = nullptr;
char contexts[DEVICES];
auto &memory = *new std::map<uint64_t, Memory>;
auto &registered = *new std::map<uint64_t, size_t>;
// Handles that were given out, all that ever were.
auto &functions = *new std::deque<Function>;
// The context of each stream and module.
auto &owners = *new std::map<const void *, const void *>;
auto &failures = *new std::map<std::string, std::pair<int, int>>;
size_t memory_left = size_t(1) << 33;
// What tests set. 0 queues: as the environment says.
bool hostile = true, changed = false;
uint32_t queues = 0, multiprocessors = 4;
uint64_t wait_max_ms = 20000;
auto &machine = *new std::shared_ptr<simt::Machine>;
int streams = 0;
// What the device has set aside for each thread.
uint32_t local_bytes = 0;
int cubins = 0;

// The name of the one kernel in a cubin for sm_90, or nothing.
std::string kernel_in(const void *image) {
  auto head = static_cast<const Elf64_Ehdr *>(image);
  if (memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_machine != EM_CUDA ||
      (head->e_flags & 0xff) != 90)
    return "";
  auto base = static_cast<const char *>(image);
  auto sections = reinterpret_cast<const Elf64_Shdr *>(base + head->e_shoff);
  const char *names = base + sections[head->e_shstrndx].sh_offset;
  for (unsigned i = 0; i < head->e_shnum; i++)
    if (!strncmp(names + sections[i].sh_name, ".text.", 6)) return names + sections[i].sh_name + 6;
  return "";
}

// Whether this process is the first that comes so far: it makes the file.
bool is_first(const std::string &file) {
  int made = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (made >= 0) close(made);
  return made >= 0;
}

// For programs that cannot call gnomon_driver_plan: GNOMON_DRIVER_PLAN is "CALL STATUS AFTER FILE".
// In the first process that gets so far, which makes FILE, CALL answers STATUS from then on; with a
// status of 0 the process ends by a signal. Without a FILE, in every process.
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
  if (!plan.on && !plan.file.empty() && !is_first(plan.file)) plan.call.clear();
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

bool is_device(int device) { return device >= FIRST_DEVICE && device < FIRST_DEVICE + DEVICES; }

int enter(const char *call) {
  if (int status = planned(call)) return status;
  if (!initialized) return NOT_INITIALIZED;
  for (int n = 0; n < DEVICES; n++) {
    if (current == &contexts[n] && retained[n] > 0) return OK;
  }
  return INVALID_CONTEXT;
}

// As `enter`, for a stream or module of the current context.
int enter_with(const char *call, const void *handle) {
  if (int status = enter(call)) return status;
  std::lock_guard hold(state);
  auto owner = owners.find(handle);
  return owner != owners.end() && owner->second == current ? OK : INVALID_HANDLE;
}

int enter_with(const char *call, const Function *function) {
  if (int status = enter(call)) return status;
  return function && function->context == current ? OK : INVALID_HANDLE;
}

// Whether an address is in memory of the other device, which no kernel or copy may reach.
bool is_elsewhere(uint64_t at) {
  std::lock_guard hold(state);
  auto next = memory.upper_bound(at);
  if (next == memory.begin()) return false;
  auto &[start, block] = *std::prev(next);
  return at - start < block.bytes && block.context != current;
}

// Makes the device, anew where that is wanted or nobody uses it. Old streams stay on the old one.
void make_machine() {
  std::lock_guard hold(state);
  if (machine && streams > 0 && machine->failure().empty() && !changed) return;
  changed = false;
  const char *said = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  int wanted = said ? atoi(said) : 0;
  uint32_t n = queues ? queues : wanted > 0 ? uint32_t(wanted) : QUEUES;
  uint32_t places = multiprocessors * BLOCKS_PER_MULTIPROCESSOR;
  machine = hostile ? std::make_shared<simt::Machine>(n < QUEUES_MAX ? n : QUEUES_MAX, places)
                    : std::make_shared<simt::Machine>(0, 0);
  local_bytes = 0;
}

// As `enter`, of a call that may wait for every kernel that runs.
int enter_and_wait(const char *call) {
  if (int status = enter(call)) return status;
  if (!machine->failure().empty()) return LAUNCH_FAILED;
  return !hostile || machine->wait_for_kernels(wait_max_ms, call) ? OK : LAUNCH_TIMEOUT;
}

// Another location in the first descriptor of a launched batch that has one.
void make_wrong(const Launch &launch) {
  GetParams params;
  memcpy(&params, launch.params.data(), sizeof params);
  const Order &order = at<const RingSlot>(params.ring_slot)->order;
  if (order.n) at<ReqDesc>(order.descs)->keys[0].location ^= 1;
}

int start(const Launch &launch, simt::Stream *stream) {
  if (launch.context != current) return INVALID_HANDLE;
  for (uint64_t word : launch.params)
    if (is_elsewhere(word)) return ILLEGAL_ADDRESS;
  if (!machine->failure().empty()) return LAUNCH_FAILED;
  // Not a call of CUDA's: the device stops for good.
  if (planned("stall")) machine->stall(UINT64_MAX);
  if (launch.kernel->local_bytes > local_bytes) {
    if (int status = enter_and_wait("a launch that needs more local memory")) return status;
    local_bytes = launch.kernel->local_bytes;
  }
  const Kernel &kernel = *launch.kernel;
  stream->launch({kernel.run, kernel.name, strlen(kernel.name), launch.params.data(),
                  kernel.params_bytes, launch.blocks, launch.threads, launch.shared_bytes,
                  kernel.stays, 0, nullptr, 0, nullptr, nullptr});
  // Nor this: what batches that were launched come to is wrong.
  if (!strncmp(kernel.name, "get_", 4) && planned("answers"))
    stream->add([launch] { make_wrong(launch); });
  return OK;
}

int make_launch(Launch &launch, const Function *function, const unsigned grid[3],
                const unsigned block[3], unsigned shared_bytes, void **params, void **extra) {
  if (!function || function->context != current) return INVALID_HANDLE;
  const Kernel *kernel = function->kernel;
  if (!params || !params[0] || extra) return INVALID_VALUE;
  if (!grid[0] || grid[1] != 1 || grid[2] != 1 || block[1] != 1 || block[2] != 1)
    return INVALID_VALUE;
  // As many as the kernel's __launch_bounds__ says, and what it may have of shared memory unasked.
  if (block[0] != kernel->threads || shared_bytes > 48 << 10) return INVALID_VALUE;
  launch = {kernel, current, grid[0], block[0], shared_bytes, {}};
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

// For tests: all that follows, from the next cuInit on. Not hostile: a queue for
// each stream, places for all blocks, and nobody waits for kernels.
void gnomon_driver_hostile(int on, uint32_t n_queues, uint32_t n_multiprocessors,
                           uint64_t longest_wait_ms) {
  std::lock_guard hold(state);
  hostile = on;
  changed = true;
  queues = n_queues;
  multiprocessors = n_multiprocessors;
  wait_max_ms = longest_wait_ms;
}
// For tests: the device stops for so many milliseconds from now on; UINT64_MAX: for ever, 0: no more.
void gnomon_driver_stall(uint64_t ms) {
  std::lock_guard hold(state);
  if (machine) machine->stall(ms);
}
// For tests: cubins that were loaded.
int gnomon_driver_cubins() { return cubins; }

int cuInit(unsigned flags) {
  if (int status = planned("cuInit")) return status;
  make_machine();
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
  *count = DEVICES;
  return OK;
}
int cuDeviceGet(int *device, int ordinal) {
  *device = FIRST_DEVICE + ordinal;
  return is_device(*device) ? OK : INVALID_DEVICE;
}
int cuDeviceGetName(char *name, int bytes, int device) {
  snprintf(name, bytes, "SIMT executor as a driver");
  return is_device(device) ? OK : INVALID_DEVICE;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  *bytes = memory_left;
  return is_device(device) ? OK : INVALID_DEVICE;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  // Multiprocessors, maps host memory, unified addressing, compute capability; PCI bus, device and domain.
  const std::map<int, int> known = {
      {16, int(multiprocessors)}, {19, 1}, {41, 1}, {75, 9}, {76, 0},
      {33, 0x60 + device}, {34, 0}, {50, 0}};
  auto found = known.find(attribute);
  if (!is_device(device) || found == known.end()) return INVALID_VALUE;
  *value = found->second;
  return OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  if (!is_device(device)) return INVALID_DEVICE;
  retained[device - FIRST_DEVICE]++;
  *context = &contexts[device - FIRST_DEVICE];
  return OK;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  if (!is_device(device) || retained[device - FIRST_DEVICE] == 0) return INVALID_CONTEXT;
  retained[device - FIRST_DEVICE]--;
  return OK;
}
int cuCtxSetCurrent(void *context) {
  if (context != &contexts[0] && context != &contexts[1]) return INVALID_CONTEXT;
  current = context;
  return OK;
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned options, int *names,
                       void **values) {
  if (int status = enter_and_wait("cuModuleLoadDataEx")) {
    for (unsigned i = 0; i + 1 < options; i++)
      if (names[i] == 5 && names[i + 1] == 6)
        snprintf(static_cast<char *>(values[i]), size_t(values[i + 1]), "ptxas says no");
    return status;
  }
  // A copy of the text stands for the module; of a cubin, what a text would say of its kernel.
  const char *text = static_cast<const char *>(image);
  if (std::string name = kernel_in(image); !name.empty()) {
    if (int status = planned("cubin")) return status;
    cubins++;
    *module = strdup((".visible .entry " + name + "(").c_str());
  } else if (strstr(text, ".version 8.") && strstr(text, ".target sm_75")) {
    *module = strdup(text);
  } else {
    return INVALID_PTX;
  }
  std::lock_guard hold(state);
  owners[*module] = current;
  return OK;
}
int cuModuleUnload(void *module) {
  if (int status = enter_and_wait("cuModuleUnload")) return status;
  std::lock_guard hold(state);
  auto owner = owners.find(module);
  if (owner == owners.end() || owner->second != current) return INVALID_HANDLE;
  owners.erase(owner);
  free(module);
  return OK;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  if (int status = enter_with("cuModuleGetFunction", module)) return status;
  std::string entry = std::string(".visible .entry ") + name + "(";
  if (!strstr(static_cast<char *>(module), entry.c_str())) return NOT_FOUND;
  for (const Kernel &kernel : KERNELS)
    if (!strcmp(kernel.name, name)) {
      std::lock_guard hold(state);
      *function = &functions.emplace_back(Function{&kernel, current});
      return OK;
    }
  return NOT_FOUND;
}
int cuFuncLoad(Function *function) {
  if (int status = enter_and_wait("cuFuncLoad")) return status;
  return function && function->context == current ? OK : INVALID_HANDLE;
}
int cuFuncSetAttribute(Function *function, int, int) {
  return enter_with("cuFuncSetAttribute", function);
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Function *function, int, size_t) {
  *blocks = BLOCKS_PER_MULTIPROCESSOR;
  return enter_with("cuOccupancyMaxActiveBlocksPerMultiprocessor", function);
}

int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
  if (int status = enter_and_wait("cuMemAlloc")) return status;
  if (bytes == 0) return INVALID_VALUE;
  void *start = bytes < memory_left ? aligned_alloc(256, (bytes + 255) / 256 * 256) : nullptr;
  if (!start) return OUT_OF_MEMORY;
  // Memory comes as it is; who wants zeros fills it.
  memset(start, 0xa5, bytes);
  *at = uint64_t(start);
  std::lock_guard hold(state);
  memory[*at] = {bytes, current};
  return OK;
}
int cuMemFree_v2(uint64_t at) {
  if (int status = enter_and_wait("cuMemFree")) return status;
  std::lock_guard hold(state);
  auto block = memory.find(at);
  if (block == memory.end() || block->second.context != current) return INVALID_VALUE;
  memory.erase(block);
  free(reinterpret_cast<void *>(at));
  return OK;
}
int cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags) {
  if (int status = enter_and_wait("cuMemHostRegister")) return status;
  std::lock_guard hold(state);
  if (!bytes || uint64_t(start) % 4096 || flags != 3) return INVALID_VALUE;
  auto next = registered.lower_bound(uint64_t(start) + bytes);
  if (next != registered.begin() && std::prev(next)->first + std::prev(next)->second > uint64_t(start))
    return ALREADY_REGISTERED;
  registered[uint64_t(start)] = bytes;
  return OK;
}
int cuMemHostUnregister(void *start) {
  if (int status = enter_and_wait("cuMemHostUnregister")) return status;
  std::lock_guard hold(state);
  return registered.erase(uint64_t(start)) ? OK : NOT_REGISTERED;
}
int cuMemHostGetDevicePointer_v2(uint64_t *at, void *start, unsigned flags) {
  if (int status = enter("cuMemHostGetDevicePointer")) return status;
  std::lock_guard hold(state);
  *at = uint64_t(start);
  return registered.count(*at) && !flags ? OK : INVALID_VALUE;
}

int cuCtxGetStreamPriorityRange(int *lowest, int *highest) {
  if (int status = enter("cuCtxGetStreamPriorityRange")) return status;
  *lowest = 0;
  *highest = HIGHEST_PRIORITY;
  return OK;
}
// What runs kernels has no priorities.
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  if (int status = enter(priority ? "cuStreamCreateWithPriority" : "background")) return status;
  if (flags != 1 || (priority && priority != HIGHEST_PRIORITY)) return INVALID_VALUE;
  std::lock_guard hold(state);
  auto *made = new simt::Stream(machine);
  if (!made->queue) {
    delete made;
    return OUT_OF_MEMORY;
  }
  streams++;
  owners[made] = current;
  *stream = made;
  return OK;
}
int cuStreamDestroy_v2(void *handle) {
  if (int status = enter_with("cuStreamDestroy", handle)) return status;
  std::lock_guard hold(state);
  streams--;
  owners.erase(handle);
  delete static_cast<simt::Stream *>(handle);
  return OK;
}
int cuStreamQuery(void *handle) {
  if (int status = enter_with("cuStreamQuery", handle)) return status;
  auto *stream = static_cast<simt::Stream *>(handle);
  bool idle = stream->is_idle();
  std::string why = stream->machine->failure();
  if (why.empty()) return idle ? OK : NOT_READY;
  static std::string said;
  std::lock_guard hold(state);
  if (said != why) fprintf(stderr, "%s\n", why.c_str());
  said = why;
  return LAUNCH_FAILED;
}
int cuMemsetD8Async(uint64_t at, uint8_t value, size_t bytes, void *stream) {
  if (int status = enter_with("cuMemsetD8Async", stream)) return status;
  if (is_elsewhere(at)) return INVALID_VALUE;
  static_cast<simt::Stream *>(stream)->add(
      [=] { memset(reinterpret_cast<void *>(at), value, bytes); });
  return OK;
}
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  if (int status = enter_with("cuMemcpyAsync", stream)) return status;
  if (is_elsewhere(to) || is_elsewhere(from)) return INVALID_VALUE;
  static_cast<simt::Stream *>(stream)->add(
      [=] { memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes); });
  return OK;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  return cuMemcpyAsync(uint64_t(to), from, bytes, stream);
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared_bytes, void *stream, void **params, void **extra) {
  if (int status = enter_with("cuLaunchKernel", stream)) return status;
  const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  Launch launch;
  int status = make_launch(launch, static_cast<Function *>(function), grid, block, shared_bytes,
                           params, extra);
  return status ? status : start(launch, static_cast<simt::Stream *>(stream));
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
  return make_launch(*static_cast<Launch *>(graph), static_cast<Function *>(params->function),
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
  return ready ? enter_with("cuGraphUpload", stream) : INVALID_HANDLE;
}
int cuGraphLaunch(void *ready, void *stream) {
  if (int status = enter_with("cuGraphLaunch", stream)) return status;
  return start(*static_cast<Launch *>(ready), static_cast<simt::Stream *>(stream));
}
int cuGraphExecDestroy(void *ready) {
  delete static_cast<Launch *>(ready);
  return OK;
}
}
