// What rows spoil: repeated ones, those that are evaluated on and trained on, beginnings without
// the token that belongs there; and the learning rates of the steps that they give.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/check/run_checks.h"
#include "temper/check/text.h"
#include "temper/metrics/format.h"
#include "temper/text/tokenizer/special_tokens.h"
#include "temper/train/optimizers/schedule.h"

namespace temper::checks {
namespace {

constexpr int64_t kRatePoints = 64;  // steps whose learning rate is given, at most

std::string place_of(const data::RowOrder& order, RowSizes::Location place) {
  return order.rows_of(place.source).where(place.row);
}

// The token that a text of this model begins with; -1: it has none.
int32_t beginning_token(const std::string& model, const Tokenizer& tokenizer) {
  const std::vector<int32_t> before = tokenizer.tokens_before_text();
  if (!before.empty()) return before[0];
  const Json special = special_tokens(model);
  const auto bos = special.find("bos_token");
  if (bos == special.end() || !bos->is_string()) return -1;
  return tokenizer.id_of(bos->get_ref<const std::string&>()).value_or(-1);
}

}  // namespace

Finding RunChecks::duplicates(const Rows& train) {
  const auto pairs = train.sizes.repeated();
  if (pairs.empty()) return Finding::pass("no row repeats another", {{"rows", 0}});
  return Finding::warn(
      str(counted(std::ssize(pairs)), pairs.size() == 1 ? " row repeats" : " rows repeat",
          " an earlier one, and so are trained more often than others: ",
          place_of(*train.order, pairs[0].first), " equals ",
          place_of(*train.order, pairs[0].second)),
      {{"rows", pairs.size()}});
}

Finding RunChecks::overlap(const Rows& train, const Rows& eval) {
  const auto rows = train.sizes.found_in(eval.sizes);
  const auto prompts = train.sizes.prompts_found_in(eval.sizes);
  const Json values{{"rows", rows.size()}, {"prompts", prompts.size()}};
  if (rows.empty() && prompts.empty())
    return Finding::pass("no evaluation row is a training row, or has the prompt of one", values);
  const std::string of_all = str(" of ", counted(eval.sizes.counts.rows), " evaluation rows ");
  std::string message;
  if (!rows.empty())
    message = str(counted(std::ssize(rows)), of_all,
                  "are training rows, too: ", place_of(*eval.order, rows[0].first), " equals ",
                  place_of(*train.order, rows[0].second));
  if (!prompts.empty())
    message += str(message.empty() ? "" : "; ", counted(std::ssize(prompts)), of_all,
                   "have the prompt of a training row, with another answer: ",
                   place_of(*eval.order, prompts[0].first), " that of ",
                   place_of(*train.order, prompts[0].second));
  return Finding::warn(
      message + "; on such rows the evaluation does not measure how the model does on unseen data",
      values);
}

Finding RunChecks::balanced(const Rows& train) const {
  std::string message;
  Json values = Json::object();
  for (size_t s = 0; s < train.order->sources().size(); ++s)
    for (const data::BalanceGroup& group : train.order->rows_of(s).balanced()) {
      if (group.rows == 0) continue;
      message += str(message.empty() ? "" : ", ", group.name, " ", counted(group.balanced), " of ",
                     counted(group.rows));
      values[train.order->sources()[s].name][group.name] = {{"rows", group.rows},
                                                            {"balanced", group.balanced}};
    }
  if (!message.empty()) return Finding::pass("rows of " + message, values);
  for (size_t s = 0; s < train.sizes.groups.size(); ++s)
    for (const auto& [name, rows] : train.sizes.groups[s]) {
      message += str(message.empty() ? "" : ", ", name, " ", counted(rows));
      values[train.order->sources()[s].name][name] = {{"rows", rows}};
    }
  return Finding::pass("rows of " + message + "; they stay as they are", values);
}

void RunChecks::notices(const RowSizes& sizes) {
  const data::RowNotices& n = sizes.counts.notices;
  const auto values = [](int64_t rows) { return Json{{"rows", rows}}; };
  if (n.text_prompts.rows > 0)
    list.add("data.prompts_as", Finding::warn(n.about_text_prompts(), values(n.text_prompts.rows)));
  if (n.control_tokens.rows > 0) {
    const bool parse = config.data.control_tokens == data::ControlTokens::kParse;
    list.add("data.control_tokens",
             {parse ? Finding::Status::kWarn : Finding::Status::kPass,
              n.about_control_tokens(config.data.control_tokens), values(n.control_tokens.rows)});
  }
  if (const std::string tools = n.about_tools(); !tools.empty())
    list.add("tools", Finding::fail(config.where("data.train") + ": " + tools,
                                    {{"tools", n.unwritten_tools.rows},
                                     {"tool_calls", n.unwritten_calls.rows}}));
}

Finding RunChecks::beginnings(const Rows& train) const {
  if (!policy.tokenizer)
    return Finding::pass("there is no tokenizer that says what a row begins with");
  const int32_t bos = beginning_token(config.model.path, *policy.tokenizer);
  if (bos < 0) return Finding::pass("the tokenizer has no beginning-of-text token");
  const std::string name = "`" + policy.tokenizer->token_of(bos) + "`";
  const bool adds = !policy.tokenizer->tokens_before_text().empty();
  int64_t rows = 0, doubled = 0, missing = 0;
  std::string where_doubled, where_missing;
  for (size_t s = 0; s < train.sizes.of.size(); ++s)
    for (size_t r = 0; r < train.sizes.of[s].size(); ++r) {
      const RowSize& size = train.sizes.of[s][r];
      if (size.tokens == 0) continue;
      ++rows;
      const RowSizes::Location place{s, static_cast<int64_t>(r)};
      if (size.first == bos && size.second == bos && doubled++ == 0)
        where_doubled = place_of(*train.order, place);
      const bool begins = train.order->rows_of(s).piece(place.row) == 0;
      if (adds && begins && size.first != bos && missing++ == 0)
        where_missing = place_of(*train.order, place);
    }
  const Json values{{"rows", rows}, {"doubled", doubled}, {"missing", missing}};
  if (doubled + missing == 0)
    return Finding::pass(
        adds ? str("every row begins with ", name, ", once") : str("no row begins with two ", name),
        values);
  std::string message;
  if (doubled > 0)
    message = str(counted(doubled), " of ", counted(rows), " rows begin with ", name,
                  " twice, the first is ", where_doubled);
  if (missing > 0)
    message += str(message.empty() ? "" : "; ", counted(missing), " of ", counted(rows),
                   " rows begin without ", name,
                   ", which the tokenizer puts before a text; the "
                   "first is ",
                   where_missing);
  return Finding::warn(message, values);
}

Finding RunChecks::learning_rates(int64_t planned_steps) {
  const int64_t steps = std::max<int64_t>(1, planned_steps);
  const int64_t warmup = train::warmup_steps(config.optimizer, steps);
  const int64_t points = std::min(steps, kRatePoints);
  rates.clear();
  for (int64_t i = 0; i < points; ++i) {
    const int64_t step = points == 1 ? 1 : 1 + i * (steps - 1) / (points - 1);
    rates.push_back({step, train::learning_rate(config.optimizer, step, steps)});
  }
  Json values{{"steps", steps}, {"warmup_steps", warmup}, {"rates", Json::array()}};
  double highest = 0;
  for (const LearningRate& rate : rates) {
    values["rates"].push_back({rate.step, rate.rate});
    highest = std::max(highest, rate.rate);
  }
  const std::string message =
      str("step 1: ", format_brief(rates.front().rate), ", highest ", format_brief(highest),
          ", step ", counted(steps), ": ", format_brief(rates.back().rate),
          warmup > 0 ? str("; ", counted(warmup), " steps of warm-up") : "");
  if (warmup >= steps)
    return Finding::warn(message +
                             ", in which the run ends: optimizer.learning_rate is never "
                             "reached",
                         values);
  return Finding::pass(message, values);
}

}  // namespace temper::checks
