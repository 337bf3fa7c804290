#include "temper/rl/rollout/prompts.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/error.h"
#include "temper/generate/cache.h"
#include "temper/generate/remote/protocol.h"
#include "temper/generate/request_check.h"
#include "temper/generate/scheduler.h"
#include "temper/rl/scalar_directory.h"
#include "temper/train/roles/blind_models.h"
#include "temper/train/run/row_messages.h"

namespace temper::rl {
namespace {

constexpr int64_t kEvaluationKeys = int64_t{1} << 40;

// Whether the key-value cache holds a prompt with a completion, where this process samples.
class CacheCheck {
 public:
  CacheCheck(const RlConfig& config, const train::Policy& policy)
      : new_tokens_(config.rollout.max_new_tokens),
        bytes_(generate::cache_bytes(config.rollout.engine_options())) {
    if (!config.rollout.server.used() && config.roles.rollout.empty() && config.mesh.tensor == 1)
      cache_.emplace(*policy.model, bytes_);
  }
  // Throws ConfigError that names the row.
  void operator()(const data::PromptRow& row) const {
    if (!cache_) return;
    generate::Request request;
    request.prompt = row.tokens;
    request.options.max_new_tokens = new_tokens_;
    check_fits(generate::Scheduler::pages_needed(request, cache_->page_tokens()), request,
               {*cache_, bytes_}, row.where + ": ");
  }

 private:
  int64_t new_tokens_, bytes_;
  std::optional<generate::PageCache> cache_;  // takes no memory before it is used
};

}  // namespace

data::PromptFormat prompt_format(const RlConfig& config, const train::Policy& policy) {
  data::PromptFormat f;
  f.tokenizer = policy.tokenizer;
  f.chat = policy.chat;
  config.data.apply_to(f);
  f.vocabulary = policy.model->vocab_size;
  f.images = train::images_of(config, policy.tokenizer.get());
  return f;
}

LineFormat line_format(const RlConfig& config, const train::Policy& policy) {
  return {policy.model->vocab_size, train::images_of(config, policy.tokenizer.get())};
}

train::VerbRows<data::PromptRow> prompt_rows(const RlConfig& config, const train::Policy& policy) {
  data::PromptFormat format = prompt_format(config, policy);
  train::VerbRows<data::PromptRow> rows{
      data::prompt_reader(format),
      {},
      train::loader_options(config, config.rl.prompts_per_rollout)};
  format.ungrouped = true;  // data.balance is of the rows that are trained
  rows.evaluation = data::prompt_reader(format);
  if (config.rl.algorithm->max_refills() > 0) rows.options.epochs.reset();
  train::refuse_unseen(rows, blind_beside(config));
  return rows;
}

std::string blind_beside(const RlConfig& config) {
  std::string blind;
  if (config.rl.reference && config.rl.algorithm->needs().reference)
    blind = train::blind_model(config, "rl.reference", *config.rl.reference);
  const std::optional<std::string> critic = config.named_critic();
  if (!blind.empty() || !critic) return blind;
  const char* const key = "ppo.critic";
  return train::blind_model(config, key, *critic, [&] {
    return find_scalar_directory(*critic, config.where(key) + ": ", "critic").base;
  });
}

data::Loader<data::PromptRow>::Read looking(data::Loader<data::PromptRow>::Read read,
                                            std::function<void(const data::PromptRow&)> look) {
  return [read = std::move(read), look = std::move(look)](const data::RowOrder::Drawn& drawn,
                                                          data::LoaderState& state) {
    std::optional<data::PromptRow> row = read(drawn, state);
    if (row) look(*row);
    return row;
  };
}

void warn_beyond_positions(const std::vector<Prompt>& prompts, int64_t positions,
                           int64_t max_new_tokens, train::Messages& messages) {
  const auto is_beyond = [&](const Prompt& prompt) {
    return std::ssize(prompt.row.tokens) + max_new_tokens > positions;
  };
  const auto first = std::find_if(prompts.begin(), prompts.end(), is_beyond);
  if (positions == 0 || first == prompts.end()) return;
  const auto count = std::count_if(prompts.begin(), prompts.end(), is_beyond);
  messages.warn_once(
      "positions",
      str(first->row.where, ": ", first->row.tokens.size(), " tokens and ", max_new_tokens,
          " new ones (rollout.max_new_tokens) are more than the model's max_position_embeddings, ",
          positions, count > 1 ? str("; so are those of ", count - 1, " more rows") : ""));
}

Prompts::Prompts(const RlConfig& config, const train::Policy& policy,
                 const rewards::RewardSet& rewards, const train::VerbRows<data::PromptRow>& rows)
    : config_(config),
      loader_(data::training_sources(config.data, static_cast<uint64_t>(config.seed)), rows.options,
              rows.train),
      difficulty_(config.rl.difficulty, static_cast<uint64_t>(config.seed)) {
  const CacheCheck check_cache(config, policy);
  const generate::ServerSection& server = config.rollout.server;
  const bool takes_images =
      !server.used() || generate::remote::make_protocol(server.kind, 0)->takes_images();
  const auto look = [&](const data::PromptRow& row) {
    rewards.check_row(*row.fields, row.where);
    check<ConfigError>(takes_images || row.images.empty(), row.where, ": the prompt has images, ",
                       "which servers of rollout.server.kind: ", server.kind,
                       " do not take beside token ids; expected openai (temper serve)");
    check_cache(row);
  };
  survey_ = train::survey_rows<data::PromptRow>(loader_.order(), looking(rows.train, look));
  const auto read = looking(rows.evaluation, look);
  // Alive together, as a reader knows large prompts by the set's place in memory.
  std::vector<std::unique_ptr<data::RowSet>> sets;
  int64_t key = kEvaluationKeys;
  for (const data::SourceSpec& source :
       data::evaluation_sources(config.data, static_cast<uint64_t>(config.seed))) {
    const data::RowSet& set = *sets.emplace_back(std::make_unique<data::RowSet>(source));
    std::vector<Prompt>& prompts = evaluation_.emplace_back();
    for (int64_t r = 0; r < set.size(); ++r)
      if (std::optional<data::PromptRow> row = data::read_one(read, set, r))
        prompts.push_back({key++, std::move(*row)});
    check<DataError>(!prompts.empty(), set.path(), data::kAllLeftOut);
  }
}

std::vector<Prompt> Prompts::next(int64_t count, int64_t& passed_over) {
  std::vector<Prompt> prompts;
  int64_t in_vain = 0;  // since the last one that was taken
  bool none_left = false;
  do {
    int64_t key = loader_.state().rows;
    std::vector<data::PromptRow> rows = loader_.next(count - std::ssize(prompts));
    if (rows.empty()) break;
    for (data::PromptRow& row : rows) {
      none_left = none_left || in_vain >= loader_.order().rows();
      const bool takes = none_left || difficulty_.takes(row.where, key);
      if (takes) prompts.push_back({key, std::move(row)});
      in_vain = takes ? 0 : in_vain + 1;
      passed_over += !takes;
      ++key;
    }
  } while (difficulty_.any() && std::ssize(prompts) < count);
  return prompts;
}

int64_t Prompts::planned_batches() const {
  return loader_.order().steps(config_.train.epochs.value_or(1), survey_);
}

// Each pass over a source draws every row of it once. rl.difficulty passes over some.
double Prompts::coverage(const data::LoaderState& state) const {
  const data::RowOrder& order = loader_.order();
  int64_t sampled = difficulty_.size();
  for (size_t s = 0; s < order.sources().size() && !difficulty_.any(); ++s)
    sampled += std::min(state.counts[s], order.rows_of(s).size());
  return static_cast<double>(sampled) / static_cast<double>(order.rows());
}

void Prompts::warn(train::Messages& messages) const {
  train::warn_about_notices(survey_, config_.data.control_tokens, messages);
  const data::LoaderState& prompts = loader_.state();
  const int64_t limit = config_.data.max_length;
  if (prompts.truncated > 0)
    messages.warn_once("truncated prompts", str("prompts longer than data.max_length, ", limit,
                                                " tokens, are cut to their last ", limit));
  if (prompts.dropped > 0)
    messages.warn_once("dropped prompts", str("prompts longer than data.max_length, ", limit,
                                              " tokens, are left out"));
}

std::vector<std::pair<std::string, std::string>> Prompts::summary() const {
  return {{"prompts cut", std::to_string(loader_.state().truncated)},
          {"prompts left out", std::to_string(loader_.state().dropped)}};
}

}  // namespace temper::rl
