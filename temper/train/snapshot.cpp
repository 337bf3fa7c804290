#include "temper/train/snapshot.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <cstring>

#include "temper/base/error.h"
#include "temper/models/tensors.h"

namespace temper::train {
namespace {

// Lets the system give whole huge pages to the memory, which is first touched sooner then.
void ask_for_huge_pages(const at::Tensor& memory) {
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<uintptr_t>(memory.const_data_ptr());
  const uintptr_t first = (begin + kHuge - 1) / kHuge * kHuge,
                  last = (begin + memory.nbytes()) / kHuge * kHuge;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

// ATen copies on all threads of the caller.
at::Tensor copied(const std::byte* bytes, size_t count, SnapshotMemory& memory) {
  const auto size = static_cast<int64_t>(count);
  at::Tensor copy = memory.take(size);
  if (count > 0) copy.copy_(at::from_blob(const_cast<std::byte*>(bytes), {size}, at::kByte));
  return copy;
}

// This rank's runs of a tensor, one after the other, and the place of each in the whole.
struct Runs {
  struct Run {
    size_t place, count;
  };
  std::vector<Run> runs;
  at::Tensor bytes;
};

std::shared_ptr<const Runs> copied_runs(const TensorView& view, SnapshotMemory& memory) {
  const auto copy = std::make_shared<Runs>();
  size_t total = 0;
  view.own([&](size_t place, const std::byte*, size_t count) {
    copy->runs.push_back({place, count});
    total += count;
  });
  copy->bytes = memory.take(static_cast<int64_t>(total));
  auto* to = static_cast<std::byte*>(copy->bytes.mutable_data_ptr());
  view.own([&](size_t, const std::byte* bytes, size_t count) {
    if (count > 0) std::memcpy(to, bytes, count);
    to += count;
  });
  return copy;
}

TensorView copy_of(const TensorView& view, SnapshotMemory& memory) {
  TensorView copy;
  copy.dtype = view.dtype;
  copy.shape = view.shape;
  copy.num_bytes = view.num_bytes;
  if (view.own) {
    copy.own = [runs = copied_runs(view, memory)](const TensorView::Put& put) {
      const auto* bytes = static_cast<const std::byte*>(runs->bytes.const_data_ptr());
      for (const Runs::Run& run : runs->runs) {
        put(run.place, bytes, run.count);
        bytes += run.count;
      }
    };
    return copy;
  }
  const TensorView made = view.make ? view.make() : view;
  check(made.num_bytes == view.num_bytes, "a tensor was made of ", made.num_bytes, " bytes, not ",
        view.num_bytes);
  const auto owner = std::make_shared<at::Tensor>(copied(made.data, made.num_bytes, memory));
  copy.data = static_cast<const std::byte*>(owner->const_data_ptr());
  copy.owner = owner;
  return copy;
}

}  // namespace

at::Tensor SnapshotMemory::take(int64_t bytes) {
  const auto [first, last] = taken_.equal_range(bytes);
  for (auto it = first; it != last; ++it)
    if (it->second.use_count() == 1) return it->second;
  const at::Tensor memory = at::empty({bytes}, at::kByte);
  ask_for_huge_pages(memory);
  return taken_.emplace(bytes, memory)->second;
}

void SnapshotMemory::drop_unused() {
  std::erase_if(taken_, [](const auto& sized) { return sized.second.use_count() == 1; });
}

std::map<std::string, TensorMap> trained_files(const Trainables& trainables) {
  std::map<std::string, TensorMap> files;
  for (const auto& trainable : trainables) {
    TensorMap& weights = files[trainable->name + ".safetensors"];
    for (const NamedParameter& p : trainable->optimizer.parameters())
      weights[p.name] = models::whole_view(*p.parameter);
    files[trainable->name + ".optimizer.safetensors"] = trainable->optimizer.save();
  }
  return files;
}

TensorMap copy_of(const TensorMap& tensors, SnapshotMemory& memory) {
  TensorMap copies;
  for (const auto& [name, view] : tensors) copies.emplace(name, copy_of(view, memory));
  return copies;
}

int64_t copied_bytes(const TensorMap& tensors) {
  size_t bytes = 0;
  for (const auto& [name, view] : tensors) {
    if (!view.own)
      bytes += view.num_bytes;
    else
      view.own([&](size_t, const std::byte*, size_t count) { bytes += count; });
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace temper::train
