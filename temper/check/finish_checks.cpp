// Checks of a run's surroundings: rows that fit, disk and memory.
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/check/directories.h"
#include "temper/check/memory/disk.h"
#include "temper/check/run_checks.h"
#include "temper/check/text.h"
#include "temper/models/device.h"
#include "temper/train/run/memory_limit.h"

namespace temper::checks {
namespace fs = std::filesystem;
namespace {

// "1 row trains ", "4 rows train ".
std::string rows_train(int64_t rows) {
  return counted(rows) + (rows == 1 ? " row trains " : " rows train ");
}

}  // namespace

Finding RunChecks::describe(const char* key, const Rows& rows, int64_t steps) const {
  const RowSizes& sizes = rows.sizes;
  const data::RowSurvey& c = sizes.counts;
  // Of training rows any will do; every set that is evaluated needs its own.
  check<DataError>(c.rows > c.dropped, config.where(key), data::kAllLeftOut);
  for (size_t s = 0; s < c.dropped_rows.size() && steps == 0; ++s)
    check<DataError>(c.dropped_rows[s].size() < sizes.of[s].size(), config.where(key),
                     sizes.of.size() > 1 ? str(": set ", s + 1) : "", data::kAllLeftOut);
  std::string message = str(counted(c.rows), " rows, ", counted(c.tokens), " tokens, longest ",
                            counted(sizes.longest()));
  const int64_t split = rows.order->split_rows();
  if (split > 0) message += str("; ", counted(split), " longer rows are split");
  if (sizes.images > 0)
    message += str("; ", counted(sizes.images), " images (", counted(sizes.different_images),
                   " different), ", counted(sizes.image_tokens), " tokens");
  if (steps > 0) message += str("; ", counted(steps), " steps");
  return Finding::pass(message, {{"rows", c.rows},
                                 {"tokens", c.tokens},
                                 {"longest", sizes.longest()},
                                 {"cut", c.truncated},
                                 {"dropped", c.dropped},
                                 {"split", split},
                                 {"images", sizes.images},
                                 {"image_tokens", sizes.image_tokens},
                                 {"untrained", c.untrained}});
}

void RunChecks::lengths(const RowSizes& sizes, bool supervised) {
  const data::RowSurvey& c = sizes.counts;
  list.run("lengths", [&] {
    std::vector<std::string> problems;
    if (c.truncated > 0)
      problems.push_back(str(counted(c.truncated), " rows are longer than data.max_length, ",
                             config.data.max_length, " tokens, and are cut"));
    if (c.dropped > 0)
      problems.push_back(str(counted(c.dropped), " rows are left out (data.max_length, ",
                             config.data.max_length, " tokens)"));
    const int64_t alone = sizes.longer_than(config.train.micro_batch_tokens);
    if (alone > 0)
      problems.push_back(str(counted(alone), " rows are longer than train.micro_batch_tokens, ",
                             config.train.micro_batch_tokens,
                             ": each gets a pass of its own, which takes more memory"));
    const int64_t positions = shape.policy.shape.max_positions;
    if (positions > 0 && sizes.longest() > positions)
      problems.push_back(str("rows of ", sizes.longest(), " tokens: the model was made for ",
                             positions, " (max_position_embeddings)"));
    if (c.notices.text_messages.rows > 0) problems.push_back(c.notices.about_text_messages());
    std::string message;
    for (const std::string& problem : problems) message += (message.empty() ? "" : "; ") + problem;
    const Json values{{"cut", c.truncated}, {"dropped", c.dropped}, {"own_pass", alone}};
    return problems.empty() ? Finding::pass(
                                  "every row fits data.max_length and "
                                  "train.micro_batch_tokens",
                                  values)
                            : Finding::warn(message, values);
  });
  if (!supervised) return;
  list.run("labels", [&] {
    int64_t tokens = 0, targets = 0, of_one = 0;
    for (const auto& source : sizes.of)
      for (const RowSize& row : source)
        tokens += row.tokens, targets += row.targets, of_one += row.targets == 1;
    const int64_t given = c.rows - c.dropped;
    // Rows whose one target is an end token: all of one target but those that may have no end.
    const int64_t ends_alone = of_one - std::max<int64_t>(given - c.untrained - c.with_eos, 0);
    const Json values{{"tokens", tokens}, {"trained", targets}, {"untrained_rows", c.untrained}};
    check<DataError>(targets > 0 && c.untrained < given, config.where("data.train"),
                     ": none of the ", given, " rows trains a token; ",
                     c.truncated == given
                         ? str("data.max_length ", config.data.max_length, " cuts all of them")
                         : "see data.train_on");
    const std::string share = str(counted(targets), " of ", counted(tokens), " tokens are trained");
    std::string problems;
    if (c.untrained > 0) problems += "; " + rows_train(c.untrained) + "nothing";
    if (policy.tokenizer && c.with_eos == 0 && !policy.model->eos_token_ids.empty())
      problems += "; no row trains an end token: the model will not learn to stop";
    else if (ends_alone > 0)
      problems +=
          "; " + rows_train(ends_alone) + "the end token alone: the model learns to stop at once";
    return problems.empty() ? Finding::pass(share, values)
                            : Finding::warn(share + problems, values);
  });
}

Finding RunChecks::disk(int64_t planned_steps) const {
  const DiskPlan plan = plan_disk(shape, config, planned_steps);
  struct statvfs disk{};
  const fs::path parent = existing_parent(config.output_dir);
  check<ConfigError>(::statvfs(parent.c_str(), &disk) == 0, parent.string(), ": no file system");
  const auto free = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  std::string parts;
  Json left = Json::object();
  for (const auto& [name, bytes] : plan.left) {
    left[name] = bytes;
    if (bytes > 0) parts += str(parts.empty() ? "" : ", ", name, " ", megabytes(bytes));
  }
  const std::string message =
      str("at most ", megabytes(plan.peak), ", and ", megabytes(plan.left_bytes()),
          " when it is complete (", parts, "); ", megabytes(free), " free at ", parent.string());
  const Json values{{"needed", plan.peak},
                    {"left", plan.left_bytes()},
                    {"parts", left},
                    {"free", free},
                    {"checkpoint", plan.checkpoint}};
  if (plan.peak > free)
    return Finding::fail(config.where("output_dir") + ": " + message +
                             "; a smaller train.keep_checkpoints, rl.save_rollouts: last K or "
                             "none, or another disk",
                         values);
  return plan.peak > free / 10 * 9 ? Finding::warn(message, values)
                                   : Finding::pass(message, values);
}

Finding RunChecks::memory() const {
  const int64_t on_machine = ranks_on_machine().value_or(ranks.product()),
                here = models::ranks_on_device(on_machine, shape.device);
  const int64_t peak = plan->peak_bytes(), all = here * peak;
  const auto memory = models::memory_of(shape.device);
  std::string message = str(megabytes(peak), " a rank");
  if (here > 1) message += str(", ", megabytes(all), " for ", here, " ranks");
  if (!memory)
    return Finding::warn(message + str("; ", shape.device.str(), " does not say how much it has"),
                         {{"peak_bytes", peak}, {"ranks_here", here}});
  const int64_t usable = memory->all;
  message += str(" of ", megabytes(usable), shape.device.is_cpu() ? "" : " of ",
                 shape.device.is_cpu() ? "" : shape.device.str(), "; most in phase `",
                 plan->peak().name, "`");
  const Json values{{"peak_bytes", peak}, {"usable_bytes", usable}, {"ranks_here", here}};
  if (all > usable)
    return Finding::fail(message + "; " + what_takes_less(shape) + " would take less", values);
  return all > usable / 10 * 9 ? Finding::warn(message, values) : Finding::pass(message, values);
}

Finding RunChecks::memory_limit() const {
  const int64_t limit = *train::memory_limit(config), peak = plan->peak_bytes();
  const Json values{{"peak_bytes", peak}, {"limit_bytes", limit}};
  const std::string message = str("planned ", megabytes(peak), " of at most ", megabytes(limit));
  if (peak > limit)
    return Finding::fail(
        str(config.where("train.memory_limit"), ": ", message, "; ", parts_of(plan->peak()), "; ",
            what_takes_less(shape), " would take less"),
        values);
  return Finding::pass(message, values);
}

void RunChecks::finish(int64_t planned_steps) {
  list.run("output_dir", [&] { return output_dir(planned_steps); });
  if (!has_model) {
    list.skip("learning_rate", "the model cannot be read");
    list.skip("disk", "the model cannot be read");
    return list.skip("memory", "the model cannot be read");
  }
  list.run("learning_rate", [&] { return learning_rates(planned_steps); });
  list.run("disk", [&] { return disk(planned_steps); });
  // Memory of code and threads that a run uses and a check does not (those of its rows and of its
  // backward pass): measured on runs of a tiny model.
  constexpr int64_t kRunning = int64_t{24} << 20;
  const int64_t program = options.program_bytes + kRunning + tokenizer_bytes_;
  list.run("memory", [&, this] {
    const train::TrainSection& t = config.train;
    // Only a save before the last step copies, unless the optimizer's state is on a disk; whether
    // train.save_minutes makes one is not known.
    const bool saves = t.save_every > 0 && t.save_every < planned_steps;
    shape.snapshot = t.save_in_background.value_or(saves && !t.offloads_optimizer()) &&
                     (saves || t.save_minutes > 0);
    plan = plan_memory(shape, dividing(), program);
    if (shape.snapshot && !t.save_in_background &&
        !train::fits_for_copies(plan->peak_bytes(), config)) {  // the run then makes none
      shape.snapshot = false;
      plan = plan_memory(shape, dividing(), program);
    }
    return memory();
  });
  if (config.train.memory_limit && plan)
    list.run("memory_limit", [this] { return memory_limit(); });
  if (config.train.offload != train::TrainSection::Offload::kNone)
    list.run("offload", [&] { return offload(planned_steps); });
  if (plan && options.longest_row) list.run("longest_row", [&] { return longest_row(program); });
}

}  // namespace temper::checks
