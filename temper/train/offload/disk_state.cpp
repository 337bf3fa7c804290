#include "temper/train/offload/disk_state.h"

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <utility>

namespace temper::train {

// A piece in memory, and the jobs that read or write it.
struct DiskState::Loaded {
  std::vector<at::Tensor> state;  // on the CPU
  std::vector<std::future<void>> jobs;

  void wait(ScratchFile& file) {
    for (std::future<void>& job : jobs) file.wait(job);
    jobs.clear();
  }
};

int64_t DiskState::Part::size() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

DiskState::Part DiskState::Part::run(int64_t first, int64_t count) const {
  const auto width = static_cast<int64_t>(c10::elementSize(dtype));
  return {place + first * width, {count}, dtype};
}

DiskState::Part DiskState::add(std::vector<int64_t> shape, at::ScalarType dtype) {
  constexpr int64_t kAligned = 64;
  Part part{end_, std::move(shape), dtype};
  const int64_t bytes = part.size() * static_cast<int64_t>(c10::elementSize(dtype));
  end_ += (bytes + kAligned - 1) / kAligned * kAligned;
  return part;
}

DiskState::Loaded DiskState::load(const Piece& piece) {
  Loaded loaded;
  for (const Part& part : piece) {
    const at::Tensor& x =
        loaded.state.emplace_back(at::empty(part.shape, at::TensorOptions(part.dtype)));
    loaded.jobs.push_back(
        file_.read(x.mutable_data_ptr(), x.nbytes(), part.place, std::make_shared<at::Tensor>(x)));
  }
  return loaded;
}

at::Tensor DiskState::read(const Part& part) {
  Loaded loaded = load({part});
  loaded.wait(file_);
  return loaded.state[0];
}

void DiskState::write(const Part& part, const at::Tensor& values) {
  const at::Tensor x = values.detach().to(at::kCPU, part.dtype).contiguous();
  std::future<void> job =
      file_.write(x.const_data_ptr(), x.nbytes(), part.place, std::make_shared<at::Tensor>(x));
  file_.wait(job);
}

void DiskState::each(std::span<const Piece> pieces, at::Device device,
                     const std::function<void(size_t, std::span<const at::Tensor>)>& update) {
  std::optional<Loaded> now, before;
  if (!pieces.empty()) now = load(pieces[0]);
  for (size_t k = 0; k < pieces.size(); ++k) {
    now->wait(file_);
    std::optional<Loaded> next;
    if (k + 1 < pieces.size()) next = load(pieces[k + 1]);
    std::vector<at::Tensor> there;
    for (const at::Tensor& x : now->state) there.push_back(x.to(device));
    update(k, there);
    for (size_t s = 0; s < there.size(); ++s) {
      const at::Tensor& x = now->state[s];
      if (!device.is_cpu()) x.copy_(there[s]);
      now->jobs.push_back(file_.write(x.const_data_ptr(), x.nbytes(), pieces[k][s].place,
                                      std::make_shared<at::Tensor>(x)));
    }
    if (before) before->wait(file_);
    before = std::exchange(now, std::move(next));
  }
  if (before) before->wait(file_);
}

}  // namespace temper::train
