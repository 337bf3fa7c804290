#include "pretend_device.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <torch/library.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "temper/models/device.h"
#include "temper/ops/aten/flash_attention.h"
#include "tests/ops/flash_kernels.h"

namespace pretend {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr size_t kPage = 4096;
constexpr size_t kAddresses = size_t{1} << 44;  // reserved; none is used twice

// The device's addresses lie in one range that has no memory. What stands there is kept in blocks
// of the host's memory, which only operators look up.
class Memory {
 public:
  static Memory& instance() {
    static Memory* memory = new Memory;  // outlives the tensors of other globals
    return *memory;
  }

  char* allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const int64_t live = counts_.live_bytes + static_cast<int64_t>(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, live <= limit_,
                     "the pretend device is out of memory: ", bytes, " bytes are asked for, ",
                     limit_ - counts_.live_bytes, " of ", limit_, " are free");
    char* address = base_ + used_;
    used_ += (bytes + kPage) / kPage * kPage;  // at least a page, so that each has its own
    TORCH_CHECK(used_ <= kAddresses, "the pretend device is out of addresses");
    blocks_.emplace(address, Block{bytes, std::unique_ptr<char[]>(new char[bytes])});
    counts_.live_bytes = live;
    counts_.peak_bytes = std::max(counts_.peak_bytes, live);
    return address;
  }
  void free(char* address) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(address);
    TORCH_CHECK(found != blocks_.end(), "the pretend device: an address is freed that is none");
    counts_.live_bytes -= static_cast<int64_t>(found->second.bytes);
    blocks_.erase(found);
  }
  // Where the host keeps what is at this address of the device.
  char* kept(const void* address) {
    const std::lock_guard lock(mutex_);
    char* const at = static_cast<char*>(const_cast<void*>(address));
    auto found = blocks_.upper_bound(at);
    TORCH_CHECK(found != blocks_.begin(), "the pretend device: not one of its addresses");
    --found;
    const auto offset = static_cast<size_t>(at - found->first);
    TORCH_CHECK(offset <= found->second.bytes, "the pretend device: memory was freed");
    return found->second.memory.get() + offset;
  }
  bool owns(const void* address) const { return address >= base_ && address < base_ + kAddresses; }

  void count(int64_t Counts::* what, int64_t by) {
    const std::lock_guard lock(mutex_);
    counts_.*what += by;
  }
  Counts counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    counts_.peak_bytes = counts_.live_bytes;
  }
  int64_t limit() {
    const std::lock_guard lock(mutex_);
    return limit_;
  }
  void set_limit(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
  }
  void ran(const std::string& name) {
    const std::lock_guard lock(mutex_);
    ++operators_[name];
  }
  std::map<std::string, int64_t> operators() {
    const std::lock_guard lock(mutex_);
    return operators_;
  }

 private:
  struct Block {
    size_t bytes;
    std::unique_ptr<char[]> memory;
  };
  Memory() {
    void* base =
        ::mmap(nullptr, kAddresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(base != MAP_FAILED, "the pretend device: no addresses");
    base_ = static_cast<char*>(base);
    if (const char* limit = std::getenv("TEMPER_PRETEND_BYTES")) limit_ = std::atoll(limit);
  }
  std::mutex mutex_;
  char* base_ = nullptr;
  size_t used_ = 0;
  int64_t limit_ = int64_t{1} << 40;  // bytes
  std::map<char*, Block> blocks_;
  Counts counts_;
  std::map<std::string, int64_t> operators_;
};

// Of this thread: whether an operator is running that copies its arguments itself.
thread_local int running = 0;
struct Running {
  Running() { ++running; }
  ~Running() { --running; }
};

void free_block(void* address) {
  if (address) Memory::instance().free(static_cast<char*>(address));
}

class Allocator final : public c10::DeviceAllocator {
 public:
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    Memory& memory = Memory::instance();
    const int64_t all = memory.limit();
    return {static_cast<size_t>(all - memory.counts().live_bytes), static_cast<size_t>(all)};
  }
  c10::DataPtr allocate(size_t bytes) override {
    void* address = bytes > 0 ? Memory::instance().allocate(bytes) : nullptr;
    return {address, address, &free_block, c10::Device(kType, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(Memory::instance().kept(to), Memory::instance().kept(from), bytes);
  }
};
Allocator allocator;
REGISTER_ALLOCATOR(kType, &allocator);

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr c10::DeviceType static_type = kType;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return {kType, 0}; }
  c10::Device getDevice() const override { return {kType, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::DEFAULT, d);
  }
  c10::Stream exchangeStream(c10::Stream s) const override { return s; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::detail::createCPUGenerator();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::DataPtr memory = allocator.allocate(bytes);
    const size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0) allocator.copy_data(memory.get(), storage.data(), kept);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(memory));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

// -- The operators that a device has itself: allocation, views, copies.

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &allocator, kKeys, c10::dtype_or_default(dtype), format);
}
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, &allocator, kKeys,
                                           c10::dtype_or_default(dtype));
}
at::Tensor as_strided(const at::Tensor& x, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                      std::optional<c10::SymInt> offset) {
  return at::cpu::as_strided_symint(x, sizes, strides, offset);
}
at::Tensor reshape_alias(const at::Tensor& x, c10::SymIntArrayRef sizes,
                         c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(x, C10_AS_INTARRAYREF_SLOW(sizes),
                                    C10_AS_INTARRAYREF_SLOW(strides));
}
at::Tensor view(const at::Tensor& x, c10::SymIntArrayRef sizes) {
  return at::native::view(x, C10_AS_INTARRAYREF_SLOW(sizes));
}
const at::Tensor& resize(const at::Tensor& x, c10::SymIntArrayRef sizes,
                         std::optional<at::MemoryFormat> format) {
  return at::native::resize_(x, C10_AS_INTARRAYREF_SLOW(sizes), format);
}
at::Tensor& set_tensor(at::Tensor& x, const at::Tensor& from) {
  return at::native::set_tensor_(x, from);
}
at::Tensor& set_storage(at::Tensor& x, at::Storage from) { return at::native::set_(x, from); }
at::Tensor& set_strided(at::Tensor& x, at::Storage from, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  return at::cpu::set_(x, from, offset, sizes, strides);
}

// The tensor as the host keeps it, in the same memory.
at::Tensor kept(const at::Tensor& x) {
  if (!x.is_privateuseone()) return x;
  const void* data = x.storage().data();
  char* memory = data ? Memory::instance().kept(data) + x.storage_offset() * x.itemsize() : nullptr;
  return at::from_blob(memory, x.sizes(), x.strides(), x.options().device(at::kCPU));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  Memory& memory = Memory::instance();
  if (running == 0 && from.device() != to.device()) {
    const bool to_host = to.is_cpu();
    memory.count(to_host ? &Counts::to_host : &Counts::to_device, 1);
    memory.count(to_host ? &Counts::bytes_to_host : &Counts::bytes_to_device,
                 static_cast<int64_t>(to.nbytes()));
  }
  at::Tensor target = kept(to);
  at::native::copy_(target, kept(from), false);
  return to;
}
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}
at::Scalar local_scalar_dense(const at::Tensor& x) {
  if (running == 0) Memory::instance().count(&Counts::scalars, 1);
  return at::native::_local_scalar_dense_cpu(kept(x));
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::OperatorName& name = op.schema().operator_name();
  std::string text = c10::toString(name);
  if (text.starts_with("aten::")) text.erase(0, 6);
  Memory::instance().ran(text);
  const Running now;
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("view", view);
  m.impl("resize_", resize);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Storage_storage_offset", set_strided);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}
// The processor's, to which the device's operators come.
TORCH_LIBRARY_IMPL(aten, CPU, m) { temper::flash::add_kernels(m); }

// -- What a program that links this file finds.

void report_access(int, siginfo_t* info, void*) {
  const bool ours = Memory::instance().owns(info->si_addr);
  const char* text =
      ours ? "the host accessed the pretend device's memory:\n" : "segmentation fault\n";
  (void)!::write(STDERR_FILENO, text, std::strlen(text));
  void* frames[64];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, 64), STDERR_FILENO);
  ::_exit(128 + SIGSEGV);
}

// TEMPER_PRETEND_REPORT names a file to which counts and operators are added at the end.
void write_report() {
  const char* path = std::getenv("TEMPER_PRETEND_REPORT");
  if (!path) return;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "a"), &std::fclose);
  if (!file) return;
  const Counts c = counts();
  std::fprintf(file.get(), "to_host %ld\nto_device %ld\nbytes_to_host %ld\nbytes_to_device %ld\n",
               c.to_host, c.to_device, c.bytes_to_host, c.bytes_to_device);
  std::fprintf(file.get(), "scalars %ld\npeak_bytes %ld\n", c.scalars, c.peak_bytes);
  for (const auto& [name, count] : operators())
    std::fprintf(file.get(), "operator %s %ld\n", name.c_str(), count);
}

int64_t one() { return 1; }

const bool registered = [] {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::register_privateuse1_backend("pretend");
  temper::models::device_kinds().add(
      {"pretend", {kType, &one}, "the host's memory behind a wall, for tests"});
  // Where it is asked for, so that other runs give the processor's bits.
  if (std::getenv("TEMPER_PRETEND_FLASH"))
    temper::ops::aten_impl::ask_for_flash_attention(kType, true);
  struct sigaction action{};
  action.sa_sigaction = &report_access;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  std::atexit(&write_report);
  return true;
}();

}  // namespace

void reset_peak() { Memory::instance().reset_peak(); }
void limit_memory(int64_t bytes) { Memory::instance().set_limit(bytes); }
Counts counts() { return Memory::instance().counts(); }
std::map<std::string, int64_t> operators() { return Memory::instance().operators(); }

}  // namespace pretend
