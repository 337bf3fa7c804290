#include "temper/data/loader.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "temper/base/error.h"

namespace temper::data {

Json LoaderState::to_json() const {
  return {{"draws", draws}, {"counts", counts}, {"truncated", truncated}, {"dropped", dropped}, {"untrained", untrained},
          {"with_eos", with_eos}, {"rows", rows}};
}

LoaderState LoaderState::from_json(const Json& json, const std::string& where) {
  try {
    return {json.at("draws"), json.at("counts"), json.at("truncated"), json.at("dropped"), json.at("untrained"), json.at("with_eos"), json.at("rows")};
  } catch (const Json::exception& e) {
    throw DataError(temper::str(where, ": not a loader's state: ", e.what()));
  }
}

Loader::Loader(const std::vector<SourceSpec>& sources, SftFormat format, LoaderOptions options)
    : specs_(sources), format_(std::move(format)), options_(options) {
  bool equal = true;
  for (SourceSpec& spec : specs_) {
    if (spec.name.empty()) spec.name = spec.path;
    files_.push_back(std::make_unique<RowFile>(spec.path));
    total_rows_ += files_.back()->size();
    equal = equal && spec.weight == specs_[0].weight;
  }
  double sum = 0;
  for (size_t i = 0; i < specs_.size(); ++i) {
    share_.push_back(equal ? static_cast<double>(files_[i]->size()) : specs_[i].weight);
    sum += share_.back();
  }
  for (double& share : share_) share /= sum;
  state_.counts.assign(specs_.size(), 0);
}

Loader::~Loader() {
  if (ahead_.valid()) ahead_.wait();
}

void Loader::restore(LoaderState state) {
  check<DataError>(state.counts.size() == specs_.size(), "the checkpoint was made with ", state.counts.size(), " data sources, data.train has ",
                   specs_.size());
  if (ahead_.valid()) ahead_.wait();
  ahead_ = {};
  state_ = std::move(state);
}

int64_t Loader::steps(double epochs) const {
  const int64_t whole = static_cast<int64_t>(epochs), per_epoch = (total_rows_ + options_.batch_size - 1) / options_.batch_size;
  const int64_t rest = std::llround((epochs - static_cast<double>(whole)) * static_cast<double>(total_rows_));
  return whole * per_epoch + (rest + options_.batch_size - 1) / options_.batch_size;
}

size_t Loader::choose_source(const LoaderState& state) const {
  size_t best = 0;
  double largest = -1e300;
  for (size_t i = 0; i < share_.size(); ++i) {
    const double deficit = share_[i] * static_cast<double>(state.draws + 1) - static_cast<double>(state.counts[i]);
    if (deficit > largest + 1e-9) {
      largest = deficit;
      best = i;
    }
  }
  return best;
}

Loader::Step Loader::load(LoaderState state) const {
  Step step;
  const int64_t last = options_.epochs ? std::llround(*options_.epochs * static_cast<double>(total_rows_)) : INT64_MAX;
  int64_t drawn_in_vain = 0;
  while (static_cast<int64_t>(step.rows.size()) < options_.batch_size && state.draws < last) {
    if (options_.epochs && !step.rows.empty() && state.draws % total_rows_ == 0) break;  // the end of a pass
    const size_t s = choose_source(state);
    const RowFile& file = *files_[s];
    const int64_t pass = state.counts[s] / file.size(), place = state.counts[s] % file.size();
    const int64_t row = options_.shuffle ? permuted(place, file.size(), options_.seed, s, static_cast<uint64_t>(pass)) : place;
    ++state.counts[s];
    ++state.draws;
    bool truncated = false;
    std::optional<SftRow> read = read_sft_row(format_, file.row(row), file.where(row), &truncated);
    if (!read) {
      ++state.dropped;
      check<DataError>(++drawn_in_vain <= total_rows_, file.path(), ": every row is longer than data.max_length ", format_.max_length, " and data.overlong is drop");
      continue;
    }
    drawn_in_vain = 0;
    state.truncated += truncated;
    state.untrained += read->supervised() == 0;
    state.with_eos += format_.eos && std::find(read->labels.begin(), read->labels.end(), *format_.eos) != read->labels.end();
    ++state.rows;
    step.rows.push_back(std::move(*read));
  }
  step.state = std::move(state);
  return step;
}

std::vector<SftRow> Loader::next() {
  Step step = ahead_.valid() ? ahead_.get() : load(state_);
  state_ = std::move(step.state);
  if (!step.rows.empty()) ahead_ = std::async(std::launch::async, [this, state = state_] { return load(state); });
  return std::move(step.rows);
}

std::vector<std::vector<size_t>> pack_rows(const std::vector<int64_t>& lengths, int64_t max_tokens) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<size_t>> passes;
  std::vector<int64_t> room;
  for (const size_t row : order) {
    size_t best = passes.size();
    for (size_t p = 0; p < passes.size(); ++p)
      if (room[p] >= lengths[row] && (best == passes.size() || room[p] < room[best])) best = p;
    if (best == passes.size()) {
      passes.emplace_back();
      room.push_back(max_tokens);
    }
    passes[best].push_back(row);
    room[best] -= lengths[row];
  }
  for (auto& pass : passes) std::sort(pass.begin(), pass.end());
  return passes;
}

std::vector<std::vector<size_t>> split_rows(const std::vector<int64_t>& lengths, int64_t ranks) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<size_t>> shares(static_cast<size_t>(ranks));
  std::vector<int64_t> load(static_cast<size_t>(ranks), 0);
  for (const size_t row : order) {
    const size_t least = static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    shares[least].push_back(row);
    load[least] += lengths[row];
  }
  for (auto& share : shares) std::sort(share.begin(), share.end());
  return shares;
}

}  // namespace temper::data
