// An update whose state is on a disk (train/offload/disk_state.h).
#include <algorithm>

#include "temper/train/optimizers/optimizer.h"

namespace temper::train {
namespace {

// Elements [first, first + count) of a parameter; count 0: all of it, as it is.
struct Run {
  size_t parameter;
  int64_t first = 0, count = 0;
};

at::Tensor run_of(const at::Tensor& x, const Run& run) {
  return run.count == 0 ? x : x.view({-1}).narrow(0, run.first, run.count);
}

}  // namespace

void Optimizer::store_state_in(std::unique_ptr<DiskState> disk) {
  check(!has_state_, "the optimizer has its state in memory already");
  disk_ = std::move(disk);
}

// Where an element's update depends on it alone, so do runs of elements.
void Optimizer::step_on_disk(const std::function<Update(size_t)>& update_of) {
  std::vector<Run> runs;
  std::vector<DiskState::Piece> pieces;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const nn::Parameter& p = *parameters_[i].parameter;
    const int64_t size = p.trained().numel();
    const bool in_runs = (!p.placement() || slots_[i].by_parts) && size > DiskState::kPiece &&
                         rule_->by_element(parameters_[i].role(), p.whole_shape());
    if (!in_runs) {
      runs.push_back({i});
      pieces.push_back(slots_[i].on_disk);
      continue;
    }
    for (int64_t first = 0; first < size; first += DiskState::kPiece) {
      runs.push_back({i, first, std::min(DiskState::kPiece, size - first)});
      DiskState::Piece& piece = pieces.emplace_back();
      for (const DiskState::Part& part : slots_[i].on_disk)
        piece.push_back(part.run(first, runs.back().count));
    }
  }
  at::Tensor grad;  // of the parameter that the last run is of
  const auto update = [&](size_t k, std::span<const at::Tensor> state) {
    const Run& run = runs[k];
    nn::Parameter& parameter = *parameters_[run.parameter].parameter;
    if (parameter.placement() && !slots_[run.parameter].by_parts)
      return step_whole(run.parameter, update_of(run.parameter), state);
    if (run.first == 0) grad = gradient(run.parameter);
    rule_->update(update_of(run.parameter), run_of(grad, run),
                  run_of(parameter.trained().detach(), run), state);
    if (run.first + run.count < grad.numel() && run.count > 0) return;
    parameter.mark_updated();
  };
  if (parameters_.empty()) return;
  torn_ = true;
  disk_->each(pieces, parameters_[0].parameter->trained().device(), update);
  torn_ = false;
}

}  // namespace temper::train
