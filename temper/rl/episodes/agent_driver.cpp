#include "temper/rl/episodes/agent_driver.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <list>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/rl/episodes/growing_completion.h"
#include "temper/workers/rank_server.h"

namespace temper::rl {
namespace {

using std::chrono::steady_clock;

constexpr int64_t kMostRequests = 4096;
// How long an agent that has its reward may go on before it is ended.
constexpr double kSecondsToEnd = 5;
constexpr auto kAgentLook = std::chrono::milliseconds(5);  // time between looks at agents
constexpr int64_t kTokensOfSession = int64_t{1} << 24;

// The variable, with the run's own server among the hosts that a proxy is not asked for.
std::string without_proxy(const std::string& name) {
  const char* const hosts = std::getenv(name.c_str());
  return name + "=" + (hosts && *hosts ? std::string(hosts) + "," : "") + "127.0.0.1";
}

serve::SessionRules rules_of(const env::EnvironmentSection& section,
                             const data::PromptFormat& format,
                             const generate::GenerationOptions& options,
                             const std::vector<int32_t>& eos_token_ids) {
  serve::SessionRules rules;
  rules.most_turns = section.max_turns;
  rules.most_tokens = kTokensOfSession;
  rules.longest_prompt = format.max_length;
  rules.longest_completion = options.max_new_tokens;
  rules.ends.insert(options.stop_token_ids.begin(), options.stop_token_ids.end());
  if (!options.ignore_eos) rules.ends.insert(eos_token_ids.begin(), eos_token_ids.end());
  rules.options = options;
  return rules;
}

serve::ServerOptions server_options(const env::EnvironmentSection& section,
                                    data::PromptFormat format,
                                    const generate::GenerationOptions& options,
                                    std::shared_ptr<serve::Sessions> sessions) {
  check_environment(section, format);
  serve::ServerOptions out;
  out.port = 0;
  out.models = {{.name = "policy"}};
  out.any_model = true;
  out.format = std::move(format);
  out.defaults = options;
  out.most_positions = INT64_MAX;
  out.tool_calls = static_cast<ToolCallFormat>(section.tool_call_format);
  out.reads_clock = false;
  out.sessions = std::move(sessions);
  return out;
}

using serve::SessionTurn;
using Path = std::vector<const SessionTurn*>;  // from the beginning of a conversation

// The paths to turns that no other one continues.
std::vector<Path> paths_to_leaves(const std::vector<SessionTurn>& turns) {
  std::vector<bool> continued(turns.size(), false);
  for (const SessionTurn& turn : turns)
    if (turn.done && turn.parent >= 0) continued[static_cast<size_t>(turn.parent)] = true;
  std::vector<Path> paths;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (!turns[i].done || continued[i]) continue;
    Path& path = paths.emplace_back();
    for (int64_t t = static_cast<int64_t>(i); t >= 0; t = turns[static_cast<size_t>(t)].parent)
      path.push_back(&turns[static_cast<size_t>(t)]);
    std::reverse(path.begin(), path.end());
  }
  return paths;
}

std::string digests_of(const SessionTurn& turn) {
  std::string digests;
  for (const ImageSpan& span : turn.images)
    if (span.first == 0) digests += span.image->digest();
  return digests;
}

void sort_by_turns(std::vector<Path>& paths) {
  std::map<const SessionTurn*, std::string> digests;
  for (const Path& path : paths)
    for (const SessionTurn* turn : path)
      if (const auto [of, is_new] = digests.try_emplace(turn); is_new)
        of->second = digests_of(*turn);
  const auto is_before = [&](const SessionTurn* x, const SessionTurn* y) {
    return std::tie(x->context, digests.at(x), x->attempt, x->choice) <
           std::tie(y->context, digests.at(y), y->attempt, y->choice);
  };
  std::sort(paths.begin(), paths.end(), [&](const Path& a, const Path& b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), is_before);
  });
}

// A completion for each last turn of the session's tree: the turns from the beginning of its
// conversation to that one. A turn that several of them share trains in the first, and is context
// in the others, so that each sampled token trains once. Their order depends on what was asked and
// sampled alone. Empty where no turn is done.
std::vector<SampledEpisode> episodes_of(const serve::Session::Record& record,
                                        const Tokenizer& tokenizer) {
  std::vector<Path> paths = paths_to_leaves(record.turns);
  sort_by_turns(paths);
  std::set<const SessionTurn*> trained;
  std::vector<SampledEpisode> episodes;
  for (const Path& path : paths) {
    SampledEpisode& out = episodes.emplace_back();
    out.prompt = path.front()->context;
    out.prompt_images = path.front()->images;
    GrowingCompletion completion(out.prompt.size());
    for (const SessionTurn* turn : path) {
      if (turn != path.front())
        completion.add_answer(
            {turn->kept,
             {turn->context.begin() + static_cast<ptrdiff_t>(turn->kept), turn->context.end()}},
            spans_within(turn->images, static_cast<int64_t>(turn->kept),
                         std::ssize(turn->context)));
      completion.add_turn(turn->said, trained.insert(turn).second);
    }
    out.completion = completion.tokens();
    out.episode.text = tokenizer.decode(out.completion.tokens, true);
    out.episode.stopped = path.back()->said.stopped && !record.limited;
    out.episode.turns = std::ssize(path);
  }
  return episodes;
}

}  // namespace

struct AgentDriver::Agent {
  size_t ask = 0;
  int64_t sample = 0;
  std::shared_ptr<serve::Session> session;
  std::unique_ptr<env::AgentRun> run;
  double began = steady_seconds();
};

// The episodes of one call of run().
struct AgentDriver::Batch {
  const std::vector<Ask>& asks;
  const Done& done;
  std::list<Agent> running;
  std::deque<std::pair<size_t, int64_t>> waiting;               // ask and sample
  std::vector<std::vector<std::vector<SampledEpisode>>> ended;  // [asks][samples]
  std::vector<int64_t> unfinished;                              // [asks] number of samples
};

AgentDriver::AgentDriver(const env::EnvironmentSection& section, data::PromptFormat format,
                         generate::GenerationOptions options,
                         const std::vector<int32_t>& eos_token_ids, bool needs_reward)
    : EpisodeSampler(section),
      tokenizer_(format.tokenizer),
      needs_reward_(needs_reward),
      rules_(rules_of(section, format, options, eos_token_ids)),
      sampling_(tokenizer_ != nullptr, kMostRequests),
      sessions_(
          std::make_shared<serve::Sessions>(serve::SessionLimits(), serve::SessionRules(), false)),
      server_(server_options(section, std::move(format), options, sessions_), &sampling_) {
  server_.bind();
  listening_ = std::thread([this] { server_.listen(); });
}

AgentDriver::~AgentDriver() {
  sampling_.give_up();
  server_.stop();
  listening_.join();
}

void AgentDriver::run(generate::CompletionSource& source, const std::vector<Ask>& asks,
                      int64_t samples, const Done& done, const std::function<bool()>& stop) {
  Batch batch{asks, done, {}, {}, {}, {}};
  batch.ended.resize(asks.size());
  batch.unfinished.assign(asks.size(), samples);
  for (size_t i = 0; i < asks.size(); ++i) {
    batch.ended[i].resize(static_cast<size_t>(samples));
    for (int64_t s = 0; s < samples; ++s) batch.waiting.emplace_back(i, s);
  }
  // However sampling ends, agents end first, and nothing is left in the engine.
  struct End {
    AgentDriver& driver;
    Batch& batch;
    ~End() {
      for (Agent& agent : batch.running) driver.sessions_->remove(agent.session->name());
      batch.running.clear();
      try {
        driver.sampling_.end();
      } catch (...) {  // the engine has failed, as whoever is above this knows
      }
    }
  } const end{*this, batch};
  sampling_.begin(source, weights_);
  while (!batch.running.empty() || !batch.waiting.empty()) {
    while (!batch.waiting.empty() && std::ssize(batch.running) < section_.workers) {
      const auto [ask, sample] = batch.waiting.front();
      batch.waiting.pop_front();
      start(batch, ask, sample);
    }
    const bool busy = sampling_.step();
    for (auto agent = batch.running.begin(); agent != batch.running.end();)
      agent = advance(batch, *agent) ? batch.running.erase(agent) : std::next(agent);
    if (stop && stop()) return;
    if (!busy) sampling_.wait(kAgentLook);
  }
}

void AgentDriver::start(Batch& batch, size_t ask, int64_t sample) {
  serve::SessionRules rules = rules_;
  rules.key = batch.asks[ask].key;
  rules.number = sample;
  rules.adapter = batch.asks[ask].adapter;
  Agent& agent = batch.running.emplace_back();
  agent.ask = ask;
  agent.sample = sample;
  agent.session = sessions_->open(workers::random_key(), std::move(rules));
  const std::string& name = agent.session->name();
  try {
    agent.run = std::make_unique<env::AgentRun>(
        section_, *batch.asks[ask].row->fields,
        std::vector<std::string>{"OPENAI_BASE_URL=" + server_.address() + "/v1",
                                 std::string("OPENAI_API_KEY=") + serve::kSessionKey + name,
                                 "TEMPER_SESSION=" + name, without_proxy("NO_PROXY"),
                                 without_proxy("no_proxy")});
  } catch (const RunError& e) {
    finish(batch, agent, env::Failure{env::Failure::Kind::kCrashed, e.what()});
    batch.running.pop_back();
  }
}

// Of the agent's own time: while a request of its is being answered, none passes.
double AgentDriver::seconds_allowed(const serve::Session::Record& state) const {
  if (state.closed) return kSecondsToEnd;
  return section_.timeout_seconds + (state.begun == 0 ? section_.start_timeout_seconds : 0);
}

bool AgentDriver::advance(Batch& batch, Agent& agent) {
  const bool ended = agent.run->advance();
  const serve::Session::Record state = agent.session->state();
  if (ended) {
    finish(batch, agent, state.reward ? std::nullopt : agent.run->find_failure());
    return true;
  }
  if (section_.episode_seconds && steady_seconds() - agent.began > *section_.episode_seconds) {
    finish(batch, agent,
           agent.run->failure(env::Failure::Kind::kTimedOut,
                              temper::str("took longer than environment.episode_seconds, ",
                                          *section_.episode_seconds)));
    return true;
  }
  const double idle = std::chrono::duration<double>(steady_clock::now() - state.changed).count();
  if (idle <= seconds_allowed(state) || (state.open_requests > 0 && !state.closed)) return false;
  if (state.reward)
    finish(batch, agent, std::nullopt);
  else
    finish(batch, agent,
           agent.run->failure(env::Failure::Kind::kTimedOut,
                              temper::str("sent neither a request nor a reward within ",
                                          seconds_allowed(state), " s")));
  return true;
}

void AgentDriver::finish(Batch& batch, Agent& agent, std::optional<env::Failure> failure) {
  agent.session->close();
  sessions_->remove(agent.session->name());
  const serve::Session::Record record = agent.session->record();
  std::vector<SampledEpisode> episodes = episodes_of(record, *tokenizer_);
  std::optional<double> reward = record.reward;
  if (!failure && !reward) {
    env::AgentRun::Reward last = agent.run->read_reward();
    reward = last.value;
    failure = std::move(last.failure);
  }
  using Kind = env::Failure::Kind;
  if (!failure && episodes.empty())
    failure = agent.run->failure(Kind::kMalformed, "ended without a chat completion");
  if (!failure && !reward && needs_reward_)
    failure = agent.run->failure(
        Kind::kMalformed,
        "ended without a reward: it posts none, its last line has none, and there "
        "are no rewards");
  if (failure) count(*failure);
  // Without a turn there is nothing to train on.
  if (episodes.empty()) episodes.resize(1);
  for (SampledEpisode& e : episodes) {
    e.failed = failure.has_value();
    e.dropped = e.completion.tokens.empty() || (e.failed && drops_failures());
    e.rewarded = reward.has_value() && !e.failed;
    e.ended = steady_seconds();
    e.episode.sample = agent.sample;
    e.episode.reward = e.failed ? 0 : reward.value_or(0);
    e.episode.rewards = {{kEnvironmentReward, e.episode.reward}};
    if (e.failed)
      counted_zero_ |= !e.dropped;
    else
      gave_negative_ |= e.episode.reward < 0;
  }
  batch.ended[agent.ask][static_cast<size_t>(agent.sample)] = std::move(episodes);
  if (--batch.unfinished[agent.ask] > 0) return;
  std::vector<SampledEpisode> all;
  for (auto& of_sample : batch.ended[agent.ask])
    for (SampledEpisode& e : of_sample) all.push_back(std::move(e));
  batch.done(agent.ask, std::move(all));
}

}  // namespace temper::rl
