#include "temper/data/loader.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "temper/base/error.h"
#include "temper/data/read/source_format.h"

namespace temper::data {
namespace {
constexpr int64_t kMostFollowed = 100'000'000;  // draws that steps() follows one by one
}  // namespace

Json LoaderState::to_json() const {
  return {{"draws", draws},     {"counts", counts},       {"truncated", truncated},
          {"dropped", dropped}, {"untrained", untrained}, {"with_eos", with_eos},
          {"rows", rows},       {"batches", batches}};
}

LoaderState LoaderState::from_json(const Json& json, const std::string& where) {
  try {
    for (const char* field : {"draws", "truncated", "dropped", "untrained", "with_eos", "rows"})
      check<DataError>(json.at(field).is_number_integer(), where, ": loader: `", field,
                       "` must be a whole number");
    for (const Json& count : json.at("counts"))
      check<DataError>(count.is_number_integer(), where,
                       ": loader: `counts` must be whole numbers");
    LoaderState state{json.at("draws"),   json.at("counts"),    json.at("truncated"),
                      json.at("dropped"), json.at("untrained"), json.at("with_eos"),
                      json.at("rows")};
    state.batches = json.value("batches", int64_t{0});
    return state;
  } catch (const Json::exception& e) {
    throw DataError(temper::str(where, ": not a loader's state: ", e.what()));
  }
}

RowOrder::RowOrder(std::vector<SourceSpec> sources, LoaderOptions options)
    : specs_(std::move(sources)), options_(options) {
  bool weighted = false;
  std::set<std::string> taken;
  for (SourceSpec& spec : specs_) {
    if (spec.name.empty()) spec.name = spec.path;
    const std::string name = spec.name;
    for (int i = 2; !taken.insert(spec.name).second; ++i) spec.name = str(name, "-", i);
    sets_.push_back(std::make_unique<RowSet>(spec));
    total_rows_ += sets_.back()->size();
    weighted = weighted || spec.weight;
  }
  double sum = 0;
  for (size_t i = 0; i < specs_.size(); ++i) {
    share_.push_back(weighted ? specs_[i].weight.value_or(1)
                              : static_cast<double>(sets_[i]->size()));
    sum += share_.back();
  }
  for (double& share : share_) share /= sum;
}

std::string about_held_out(const RowOrder& order) {
  std::string all;
  for (size_t s = 0; s < order.sources().size(); ++s)
    if (const std::string& one = order.rows_of(s).about_held_out(); !one.empty())
      all += (all.empty() ? "" : "; ") + one;
  return all;
}

int64_t RowOrder::split_rows() const {
  return std::accumulate(sets_.begin(), sets_.end(), int64_t{0},
                         [](int64_t sum, const auto& set) { return sum + set->split_rows(); });
}

int64_t RowOrder::draws(double epochs) const {
  // At least one, so that a run with rows has a step: it says what is wrong with them.
  return std::max<int64_t>(
      1, std::llround(std::min(epochs * static_cast<double>(total_rows_), 0x1p62)));
}

int64_t RowOrder::steps_of(int64_t rows) const {
  const int64_t whole = rows / options_.batch_size, rest = rows % options_.batch_size;
  return whole + (rest > 0 && (whole == 0 || rest >= options_.smallest_batch));
}

int64_t RowOrder::steps(double epochs) const {
  const int64_t all = draws(epochs);
  return all / total_rows_ * steps_of(total_rows_) + steps_of(all % total_rows_);
}

int64_t RowOrder::steps(double epochs, const RowSurvey& survey) const {
  if (survey.dropped == 0) return steps(epochs);
  const int64_t all = draws(epochs);
  const bool one = sets_.size() == 1;
  if (!survey.complete || (!one && all > kMostFollowed)) {
    // Where none of the first rows is given, nothing is known of the others.
    const double given = survey.dropped == survey.rows ? 1
                                                       : 1 - static_cast<double>(survey.dropped) /
                                                                 static_cast<double>(survey.rows);
    return std::max<int64_t>(1, std::llround(static_cast<double>(steps(epochs)) * given));
  }
  LoaderState state;
  state.counts.assign(sets_.size(), 0);
  int64_t steps = 0;
  if (one) {  // every whole pass gives the same rows
    steps = all / total_rows_ * steps_of(total_rows_ - survey.dropped);
    state.draws = state.counts[0] = all / total_rows_ * total_rows_;
  }
  int64_t given = 0;  // in this pass
  while (state.draws < all) {
    const auto [source, row] = choose_row(state);
    const auto& dropped = survey.dropped_rows[source];
    given += !std::binary_search(dropped.begin(), dropped.end(), row);
    if (state.draws % total_rows_ != 0 && state.draws < all) continue;
    steps += steps_of(given);
    given = 0;
  }
  return std::max<int64_t>(1, steps);
}

size_t RowOrder::choose_source(const LoaderState& state) const {
  size_t best = 0;
  double largest = -1e300;
  for (size_t i = 0; i < share_.size(); ++i) {
    const double deficit =
        share_[i] * static_cast<double>(state.draws + 1) - static_cast<double>(state.counts[i]);
    if (deficit > largest + 1e-9) {
      largest = deficit;
      best = i;
    }
  }
  return best;
}

std::pair<size_t, int64_t> RowOrder::choose_row(LoaderState& state) const {
  const size_t s = choose_source(state);
  const int64_t size = sets_[s]->size();
  const int64_t pass = state.counts[s] / size, place = state.counts[s] % size;
  const int64_t row = options_.shuffle
                          ? permuted(place, size, options_.seed, s, static_cast<uint64_t>(pass))
                          : place;
  ++state.counts[s];
  ++state.draws;
  return {s, row};
}

std::optional<RowOrder::Drawn> RowOrder::draw(LoaderState& state, bool begun) const {
  if (options_.epochs) {
    if (state.draws >= draws(*options_.epochs)) return std::nullopt;
    if (begun && state.draws % total_rows_ == 0) return std::nullopt;
  }
  const auto [source, row] = choose_row(state);
  return Drawn{sets_[source].get(), row};
}

void add_notices(LoaderState& state, const TextFormat& format, const Json& json,
                 const RowOrder::Drawn& drawn) {
  if (state.notices) state.notices->add(format, json, drawn.file->where(drawn.row), state.draws);
}

std::vector<std::vector<size_t>> pack_rows(const std::vector<int64_t>& lengths,
                                           int64_t max_tokens) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
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
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<size_t>> shares(static_cast<size_t>(ranks));
  std::vector<int64_t> load(static_cast<size_t>(ranks), 0);
  for (const size_t row : order) {
    const size_t least =
        static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    shares[least].push_back(row);
    load[least] += lengths[row];
  }
  for (auto& share : shares) std::sort(share.begin(), share.end());
  return shares;
}

}  // namespace temper::data
