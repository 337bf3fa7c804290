#include "temper/train/forward_pass.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "temper/data/loader.h"
#include "temper/models/device.h"
#include "temper/models/vision/image_rows.h"
#include "temper/nn/mixed_adapters.h"
#include "temper/ops/host.h"
#include "temper/train/joint/joint_runs.h"
#include "temper/train/passes/rank_pass.h"

namespace temper::train {

int64_t PackUnit::num_tokens() const {
  int64_t count = 0;
  for (const Segment& segment : segments) count += static_cast<int64_t>(segment.tokens.size());
  return count;
}

int64_t PackUnit::num_images() const {
  int64_t count = 0;
  for (const Segment& segment : segments)
    count += std::count_if(segment.images.begin(), segment.images.end(),
                           [](const ImageSpan& span) { return span.first == 0; });
  return count;
}

int64_t PackUnit::num_image_tokens() const {
  int64_t count = 0;
  for (const Segment& segment : segments)
    for (const ImageSpan& span : segment.images) count += span.count;
  return count;
}

namespace {

constexpr int kUnitShift = 32;  // of a unit's number in nn::DropoutKeys::token

}  // namespace

void ForwardPass::add(const PackUnit& unit, uint64_t unit_of_step) {
  std::vector<int64_t> placed;      // [segments] the unit's segments in the forest
  std::vector<int64_t> last_token;  // [segments] last token of each
  uint64_t token_of_unit = 0;
  const int64_t row_tokens = unit.num_tokens();
  for (const PackUnit::Segment& segment : unit.segments) {
    const size_t parent = static_cast<size_t>(segment.parent);
    const int64_t first = forest->num_tokens();
    const std::vector<ExternalRows> of_images = models::external_rows(segment.images);
    const std::span<const ExternalRows> rows =
        segment.images.empty() ? segment.rows : std::span<const ExternalRows>(of_images);
    placed.push_back(segment.parent < 0
                         ? forest->add_root(segment.tokens, 0, rows)
                         : forest->add_child(placed.at(parent), segment.tokens, rows));
    last_token.push_back(forest->num_tokens() - 1);
    const int64_t begin = num_targets();
    for (size_t i = 0; i < segment.tokens.size(); ++i) {
      dropout.token.push_back(unit_of_step << kUnitShift | token_of_unit++);
      dropout.row_tokens.push_back(row_tokens);
      if (segment.labels.empty() || segment.labels[i] < 0) continue;
      if (i == 0 && segment.parent < 0) continue;
      row_M.push_back(i == 0 ? last_token.at(parent) : first + static_cast<int64_t>(i) - 1);
      target_M.push_back(segment.labels[i]);
    }
    if (num_targets() > begin) spans.push_back({segment.tag, begin, num_targets()});
    if (!segment.scored) continue;
    scored_row_K.push_back(last_token.back());
    scored_tag_K.push_back(segment.tag);
  }
}

std::vector<int64_t> ForwardPass::units_of(std::span<const int64_t> tokens) const {
  std::vector<int64_t> units;
  for (const int64_t token : tokens)
    units.push_back(
        static_cast<int64_t>(dropout.token.at(static_cast<size_t>(token)) >> kUnitShift));
  return units;
}

void ForwardPass::add(const PackUnit& unit, uint64_t unit_of_step, int adapter) {
  const int64_t tokens = forest->num_tokens(), targets = num_targets();
  add(unit, unit_of_step);
  belong_to(adapter, tokens, targets);
}

void ForwardPass::add_row(std::span<const int32_t> tokens, std::span<const int64_t> position,
                          std::span<const int64_t> target, int adapter,
                          std::span<const ImageSpan> images) {
  const int64_t first = forest->num_tokens(), targets = num_targets();
  forest->add_root(tokens, 0, models::external_rows(images));
  for (const int64_t place : position) row_M.push_back(first + place);
  target_M.insert(target_M.end(), target.begin(), target.end());
  belong_to(adapter, first, targets);
}

// What was added behind so many tokens and targets is the adapter's.
void ForwardPass::belong_to(int adapter, int64_t tokens, int64_t targets) {
  check((adapters.empty() ? 0 : adapters.back().end) == tokens,
        "a pass of several adapters has rows without one");
  const auto earlier = std::ranges::find(adapters, adapter, &nn::AdapterRows::adapter);
  check(earlier == adapters.end() || earlier + 1 == adapters.end(), "rows of adapter ", adapter,
        " do not follow each other");
  nn::append_adapter_rows(adapters, adapter, forest->num_tokens() - tokens);
  if (num_targets() > targets)
    nn::append_adapter_rows(target_adapters, adapter, num_targets() - targets);
}

std::shared_ptr<const std::vector<int64_t>> ForwardPass::rows() const {
  std::vector<int64_t> read = row_M;
  read.insert(read.end(), scored_row_K.begin(), scored_row_K.end());
  if (adapters.size() < 2) return nn::rows_to_read(std::move(read), forest->num_tokens());
  // Each adapter's are those of its own pass.
  auto all = std::make_shared<std::vector<int64_t>>();
  for (const nn::AdapterRows& range : adapters) {
    std::vector<int64_t> own;
    for (const int64_t row : read)
      if (row >= range.begin && row < range.end) own.push_back(row - range.begin);
    const auto chosen = nn::rows_to_read(std::move(own), range.end - range.begin);
    for (int64_t i = 0, n = range.end - range.begin; i < (chosen ? std::ssize(*chosen) : n); ++i)
      all->push_back(range.begin + (chosen ? (*chosen)[static_cast<size_t>(i)] : i));
  }
  return std::ssize(*all) == forest->num_tokens() ? nullptr : all;
}

nn::Context context_of(const ForwardPass& pass, const PassOptions& options) {
  check(pass.adapters.empty() || pass.adapters.back().end == pass.forest->num_tokens(),
        "a pass of several adapters has rows without one");
  nn::RouterWatch* const routers = options.watched ? pass.routers : nullptr;
  return {.forest = pass.forest,
          .adapter = pass.adapters.empty() ? options.adapter : pass.adapters[0].adapter,
          .adapter_rows = pass.adapters.size() > 1 ? pass.adapters : std::vector<nn::AdapterRows>(),
          .rows = routers && routers->loss ? nullptr : pass.rows(),
          .dropout = options.dropout ? &pass.dropout : nullptr,
          .routers = routers,
          .recompute = options.recompute,
          .inputs = options.recompute ? pass.inputs : nullptr};
}

models::LogpOptions logp_options(const ForwardPass& pass, const PassOptions& options) {
  return {.temperature = options.temperature,
          .entropy = options.entropy,
          .log_sum_exp = options.log_sum_exp,
          .adapter = options.adapter,
          .adapter_rows = pass.target_adapters,
          .kept = pass.kept};
}

ops::TokenLogp token_logp(models::CausalLM& model, const ForwardPass& pass,
                          const PassOptions& options) {
  if (JointRun* joint = JointRun::current(); joint && joint->shares(model, pass, options))
    return joint->token_logp(pass, options);
  check(pass.adapters.size() <= 1 || nn::mixes_adapters(model),
        "adapters of experts, or of layers that ranks divide, do not share a pass");
  const RankPass of_rank(model, pass);
  const ForwardPass& own = of_rank.pass();
  const at::Tensor hidden = model.forward(of_rank.context(options));
  const ops::TokenLogp found =
      model.token_logp(hidden, own.row_M, own.target_M, logp_options(own, options));
  const std::vector<at::Tensor> here = ops::to_host({found.logp, found.entropy, found.log_sum_exp});
  return {of_rank.of_targets(here[0]), of_rank.of_targets(here[1]), of_rank.of_targets(here[2])};
}

at::Tensor scalars(models::ScalarModel& model, const ForwardPass& pass,
                   const PassOptions& options) {
  PassOptions unwatched = options;
  unwatched.watched = false;
  // On a GPU, LibTorch's one thread for gradients would wait for itself.
  JointRun* const joint = models::chosen_device().is_cpu() ? JointRun::current() : nullptr;
  if (joint && joint->shares(model, pass, unwatched))
    return model.values(joint->hidden(pass, unwatched), pass.scored_row_K);
  const RankPass of_rank(model, pass);
  return of_rank.of_scored(
      model.values(model.forward(of_rank.context(unwatched)), of_rank.pass().scored_row_K));
}

namespace {

// Whether the pass of the unit alone would train.
bool trains(const PackUnit& unit) {
  ForwardPass alone;
  alone.add(unit, 0);
  return alone.trains();
}

// The passes of one rank, of the units at `used`. A unit keeps its number in the step, which its
// random numbers are keyed by.
std::vector<ForwardPass> deal(std::span<const PackUnit> units, const std::vector<size_t>& used,
                              int64_t max_tokens, int rank, int ranks) {
  std::vector<int64_t> lengths;
  for (const size_t u : used) lengths.push_back(units[u].num_tokens());
  const std::vector<size_t> mine = data::split_rows(lengths, ranks)[static_cast<size_t>(rank)];
  std::vector<int64_t> my_lengths;
  for (const size_t i : mine) my_lengths.push_back(max_tokens > 0 ? lengths[i] : 1);
  std::vector<ForwardPass> passes;
  for (const std::vector<size_t>& packed :
       data::pack_rows(my_lengths, std::max<int64_t>(max_tokens, 1))) {
    passes.emplace_back();
    for (const size_t i : packed) passes.back().add(units[used[mine[i]]], used[mine[i]]);
  }
  return passes;
}

}  // namespace

std::vector<ForwardPass> plan_passes(std::span<const PackUnit> units, int64_t max_tokens,
                                     const dist::Group& rows, bool every_token) {
  if (!rows.in_step()) return plan_passes(units, max_tokens, rows.rank(), rows.size());
  std::vector<size_t> used;
  for (size_t u = 0; u < units.size(); ++u)
    if (every_token || trains(units[u])) used.push_back(u);
  std::vector<ForwardPass> mine = deal(units, used, max_tokens, rows.rank(), rows.size());
  size_t most = 0;
  for (int rank = 0; rank < rows.size(); ++rank)
    most = std::max(most, deal(units, used, max_tokens, rank, rows.size()).size());
  while (mine.size() < most) {
    const size_t shortest = *std::min_element(used.begin(), used.end(), [&](size_t a, size_t b) {
      return units[a].num_tokens() < units[b].num_tokens();
    });
    mine.emplace_back().add(units[shortest], shortest);
    mine.back().shadow = true;
  }
  return mine;
}

std::vector<ForwardPass> plan_passes(std::span<const PackUnit> units, int64_t max_tokens, int rank,
                                     int ranks) {
  std::vector<size_t> all(units.size());
  std::iota(all.begin(), all.end(), 0);
  return deal(units, all, max_tokens, rank, ranks);
}

}  // namespace temper::train
