#include "temper/ops/state_store.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"

namespace temper::ops {

StateStore::StateStore(std::vector<std::vector<int64_t>> sizes, at::Device device)
    : device_(device) {
  for (const std::vector<int64_t>& layer : sizes) {
    places_.emplace_back();
    for (const int64_t count : layer) {
      places_.back().emplace_back(numbers_, count);
      numbers_ += count;
    }
  }
}

int64_t StateStore::slot_bytes() const { return numbers_ * static_cast<int64_t>(sizeof(float)); }

at::Tensor StateStore::slot(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  if (slots_.size() <= i) slots_.resize(i + 1);
  if (!slots_[i].defined())
    slots_[i] = at::empty({numbers_}, at::TensorOptions(at::kFloat).device(device_));
  return slots_[i];
}

void StateStore::copy(int64_t from, int64_t to) { slot(to).copy_(slot(from)); }

CarriedStates StateStore::carried(const std::vector<StateSlots>& sequences, int64_t layer,
                                  int64_t part) const {
  const auto [begin, count] = places_.at(static_cast<size_t>(layer)).at(static_cast<size_t>(part));
  CarriedStates states;
  for (const StateSlots& sequence : sequences) {
    CarriedState& state = states.emplace_back();
    if (sequence.from >= 0) state.from = slot(sequence.from).narrow(0, begin, count);
    for (const auto& [row, to] : sequence.to)
      state.to.emplace_back(row, slot(to).narrow(0, begin, count));
  }
  return states;
}

}  // namespace temper::ops
