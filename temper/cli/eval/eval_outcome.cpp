#include "temper/cli/eval/eval_outcome.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/metrics/format.h"

namespace temper::cli {
namespace {

std::string pass_k(const EvalOutcome& outcome) { return "pass@" + std::to_string(outcome.samples); }

std::string interval_line(const std::string& name, const Interval& v) {
  return temper::str(
      name, std::string(name.size() < 10 ? 10 - name.size() : 1, ' '), format_fixed(v.mean, 4),
      v.is_known()
          ? temper::str("  (", format_fixed(v.low, 4), " to ", format_fixed(v.high, 4), ")\n")
          : "  (of one prompt: no interval)\n");
}

}  // namespace

Json interval(const Interval& i) {
  if (!i.is_known()) return {{"mean", i.mean}, {"low", nullptr}, {"high", nullptr}};
  return {{"mean", i.mean}, {"low", i.low}, {"high", i.high}};
}

EvalOutcome summarize(std::span<const EvalSample> samples, int64_t each, double threshold) {
  std::vector<double> reward, one, k;
  int64_t count = 0, tokens = 0, truncated = 0;
  for (size_t i = 0; i < samples.size(); i += static_cast<size_t>(each)) {
    double sum = 0;
    int64_t correct = 0, kept = 0;
    for (const EvalSample& sample : samples.subspan(i, static_cast<size_t>(each))) {
      if (sample.dropped) continue;
      ++kept;
      sum += sample.reward;
      correct += sample.reward >= threshold;
      tokens += sample.tokens;
      truncated += sample.truncated;
    }
    if (kept == 0) continue;
    count += kept;
    reward.push_back(sum / static_cast<double>(kept));
    one.push_back(pass_at_k(kept, correct, 1));
    k.push_back(pass_at_k(kept, correct, kept));
  }
  EvalOutcome out;
  out.prompts = std::ssize(reward);
  out.samples = each;
  out.reward = confidence_interval(reward);
  out.pass_one = confidence_interval(one);
  out.pass_k = confidence_interval(k);
  if (count > 0) out.length = static_cast<double>(tokens) / static_cast<double>(count);
  if (count > 0) out.truncated = static_cast<double>(truncated) / static_cast<double>(count);
  return out;
}

Json to_json(const EvalOutcome& o) {
  Json all = {{"prompts", o.prompts},
              {"samples", o.samples},
              {"reward", interval(o.reward)},
              {"pass@1", interval(o.pass_one)}};
  all[pass_k(o)] = interval(o.pass_k);
  all["completion_length_mean"] = o.length;
  all["truncated_fraction"] = o.truncated;
  all["reward_failures"] = o.failures;
  if (o.episodes) {
    all["turns_mean"] = o.episodes->turns;
    all["environment_failures"] = o.episodes->failures;
    all["episodes_dropped"] = o.episodes->dropped;
  }
  return all;
}

std::string to_text(const EvalOutcome& o) {
  std::string text = temper::str(
      o.prompts, " prompts, ", o.samples, " samples each; 95 % intervals over prompts\n",
      interval_line("reward", o.reward), interval_line("pass@1", o.pass_one));
  if (o.samples > 1) text += interval_line(pass_k(o), o.pass_k);
  text += temper::str("tokens    ", format_fixed(o.length, 1), " a completion, ",
                      format_fixed(100 * o.truncated, 1), " % cut at --max-new-tokens\n");
  if (o.episodes)
    text += temper::str("turns     ", format_fixed(o.episodes->turns, 2), " per episode, ",
                        o.episodes->failures, " environment failures, ", o.episodes->dropped,
                        " episodes dropped\n");
  if (o.failures > 0)
    text +=
        temper::str("rewards   ", o.failures, " completions whose reward failed, counted as 0\n");
  return text;
}

}  // namespace temper::cli
