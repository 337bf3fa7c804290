#include "temper/train/offload/disk_inputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <utility>
#include <vector>

#include "temper/metrics/trace.h"
#include "temper/train/offload/scratch_file.h"

namespace temper::train {
namespace {

struct Entry {
  int64_t place = 0, bytes = 0;
  std::vector<int64_t> shape;
  at::TensorOptions options;  // of the tensor that was kept
  at::Tensor here;            // in the host's memory, while it is written or read ahead
  std::future<void> reading = {};
  bool needed = true;
};

class InMemory : public nn::BlockInputs::Kept {
 public:
  explicit InMemory(at::Tensor x) : x_(std::move(x)) {}
  at::Tensor take() override { return x_; }

 private:
  at::Tensor x_;
};

}  // namespace

// A device's backward pass may run on another thread than its forward pass.
class DiskInputs::Stack {
 public:
  Stack(const std::string& directory, const std::string& what) : file_(directory, what) {}

  std::shared_ptr<Entry> keep(const at::Tensor& x) {
    const std::lock_guard lock(mutex_);
    end_write();
    auto entry = std::make_shared<Entry>();
    entry->here = x.detach().to(at::kCPU).contiguous();
    entry->bytes = static_cast<int64_t>(entry->here.nbytes());
    entry->place = entries_.empty() ? 0 : entries_.back()->place + entries_.back()->bytes;
    entry->shape = x.sizes().vec();
    entry->options = x.options();
    writing_ = start(entry, &ScratchFile::write, entry->here.const_data_ptr());
    written_ = entry;
    entries_.push_back(entry);
    return entry;
  }

  at::Tensor take(const std::shared_ptr<Entry>& entry) {
    const std::lock_guard lock(mutex_);
    if (!entry->here.defined()) {
      end_write();
      read(*entry);
    }
    file_.wait(entry->reading);
    const at::Tensor found = std::exchange(entry->here, {});
    read_ahead(entry);
    return found.to(entry->options.device());
  }

  void release(const std::shared_ptr<Entry>& entry) {
    const std::lock_guard lock(mutex_);
    entry->needed = false;
    entry->here.reset();
    while (!entries_.empty() && !entries_.back()->needed) entries_.pop_back();
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    if (entries_.empty()) file_.clear();
  }

 private:
  template <class Method, class Bytes>
  std::future<void> start(const std::shared_ptr<Entry>& entry, Method method, Bytes* bytes) {
    return (file_.*method)(bytes, static_cast<size_t>(entry->bytes), entry->place,
                           std::make_shared<at::Tensor>(entry->here));
  }
  // The tensor whose write was begun last leaves memory.
  void end_write() {
    if (!written_) return;
    const trace::Span span("wait for the disk");
    const std::shared_ptr<Entry> entry = std::exchange(written_, nullptr);
    std::future<void> writing = std::exchange(writing_, {});
    file_.wait(writing);
    entry->here.reset();
  }
  void read(Entry& entry) {
    entry.here = at::empty(entry.shape, entry.options.device(at::kCPU));
    entry.reading = file_.read(entry.here.mutable_data_ptr(), static_cast<size_t>(entry.bytes),
                               entry.place, std::make_shared<at::Tensor>(entry.here));
  }
  void read_ahead(const std::shared_ptr<Entry>& after) {
    auto at = std::find(entries_.rbegin(), entries_.rend(), after);
    if (at == entries_.rend()) return;
    for (++at; at != entries_.rend(); ++at)
      if ((*at)->needed) {
        if (!(*at)->here.defined()) read(**at);
        return;
      }
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<Entry>> entries_;  // in the order of their places
  std::shared_ptr<Entry> written_;
  std::future<void> writing_;
  ScratchFile file_;  // last: its thread uses the tensors
};

class DiskInputs::OnDisk : public nn::BlockInputs::Kept {
 public:
  OnDisk(std::shared_ptr<Stack> stack, std::shared_ptr<Entry> entry)
      : stack_(std::move(stack)), entry_(std::move(entry)) {}
  ~OnDisk() override { stack_->release(entry_); }
  at::Tensor take() override { return stack_->take(entry_); }

 private:
  std::shared_ptr<Stack> stack_;
  std::shared_ptr<Entry> entry_;
};

DiskInputs::DiskInputs(const std::string& directory, const std::string& what)
    : stack_(std::make_shared<Stack>(directory, what)) {}
DiskInputs::~DiskInputs() = default;

std::unique_ptr<nn::BlockInputs::Kept> DiskInputs::keep(const at::Tensor& x) {
  if (static_cast<int64_t>(x.nbytes()) < kLeastBytes) return std::make_unique<InMemory>(x.detach());
  return std::make_unique<OnDisk>(stack_, stack_->keep(x));
}

void DiskInputs::clear() { stack_->clear(); }

}  // namespace temper::train
