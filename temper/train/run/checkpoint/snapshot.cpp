#include "temper/train/run/checkpoint/snapshot.h"

#include <ATen/ATen.h>

#include <cstring>

#include "temper/base/error.h"
#include "temper/models/files/tensors.h"

namespace temper::train {
namespace {

enum class Threads { kOne, kAll };

at::Tensor copied(const std::byte* bytes, size_t count, Threads threads) {
  const auto size = static_cast<int64_t>(count);
  at::Tensor copy = at::empty({size}, at::kByte);
  if (count == 0) return copy;
  if (threads == Threads::kOne)
    std::memcpy(copy.mutable_data_ptr(), bytes, count);
  else
    copy.copy_(at::from_blob(const_cast<std::byte*>(bytes), {size}, at::kByte));
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

std::shared_ptr<const Runs> copied_runs(const TensorView& view) {
  const auto copy = std::make_shared<Runs>();
  size_t total = 0;
  view.own([&](size_t place, const std::byte*, size_t count) {
    copy->runs.push_back({place, count});
    total += count;
  });
  copy->bytes = at::empty({static_cast<int64_t>(total)}, at::kByte);
  auto* to = static_cast<std::byte*>(copy->bytes.mutable_data_ptr());
  view.own([&](size_t, const std::byte* bytes, size_t count) {
    if (count > 0) std::memcpy(to, bytes, count);
    to += count;
  });
  return copy;
}

TensorView copy_of(const TensorView& view, Threads threads) {
  TensorView copy;
  copy.dtype = view.dtype;
  copy.shape = view.shape;
  copy.num_bytes = view.num_bytes;
  if (view.own) {
    copy.own = [runs = copied_runs(view)](const TensorView::Put& put) {
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
  const auto owner = std::make_shared<at::Tensor>(copied(made.data, made.num_bytes, threads));
  copy.data = static_cast<const std::byte*>(owner->const_data_ptr());
  copy.owner = owner;
  return copy;
}

}  // namespace

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

TensorMap copy_of(const TensorMap& tensors) {
  TensorMap copies;
  for (const auto& [name, view] : tensors) copies.emplace(name, copy_of(view, Threads::kAll));
  return copies;
}

// The thread that writes copies alone: the others compute.
TensorView Snapshot::take(Item& item) {
  const std::lock_guard lock(mutex_);
  check(item.state != Item::State::kTaken, "a tensor of a snapshot was asked for twice");
  TensorView copy =
      item.state == Item::State::kCopied ? std::move(item.view) : copy_of(item.view, Threads::kOne);
  item = {{}, Item::State::kTaken};
  return copy;
}

TensorMap Snapshot::of(const TensorMap& live) {
  TensorMap views;
  for (const auto& [name, view] : live) {
    const auto item = std::make_shared<Item>();
    item->view = view;
    items_.push_back(item);
    TensorView& mine = views[name];
    mine.dtype = view.dtype;
    mine.shape = view.shape;
    mine.num_bytes = view.num_bytes;
    if (view.own)
      mine.own = [self = shared_from_this(), item](const TensorView::Put& put) {
        self->take(*item).own(put);
      };
    else
      mine.make = [self = shared_from_this(), item] { return self->take(*item); };
  }
  return views;
}

void Snapshot::complete() {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Item>& item : items_)
    if (item->state == Item::State::kLive)
      *item = {copy_of(item->view, Threads::kAll), Item::State::kCopied};
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
