// A judge behind a server with OpenAI's API.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/http/client.h"
#include "temper/rewards/judge.h"

namespace temper::rewards {
namespace {

constexpr int kTries = 4;            // of a request in all
constexpr double kLongestPause = 5;  // seconds between two of them
constexpr const char* kChat = "/v1/chat/completions";

std::string key_of(const JudgeSection& judge) {
  if (judge.api_key_env.empty()) return {};
  return http::api_key_in(judge.api_key_env, "rewards: judge.api_key_env");
}

// A chat completion's first choice; null: it has none.
Json choice_in(const std::string& body) {
  const Json answer = parse_json(body, "the judge's answer");
  const Json* choices = find_field(answer, "choices");
  return choices && choices->is_array() && !choices->empty() ? (*choices)[0] : Json();
}

// The text of a chat completion; none: it has none.
std::optional<std::string> words_in(const std::string& body) {
  const Json choice = choice_in(body);
  const Json* content = find_field(choice, "message.content");
  if (!content || !content->is_string()) return {};
  return content->get<std::string>();
}

// What to do about a server that refuses to be asked.
std::string hint_for(const http::Failure& failure) {
  if (failure.unreachable) return "; start it first, or mend judge.url";
  if (failure.status == 401 || failure.status == 403)
    return "; judge.api_key_env names the environment variable with its key";
  if (failure.status == 404)
    return "; judge.url is expected to have /v1/models and /v1/chat/completions";
  return "";
}

class ServerJudge : public Judge {
 public:
  explicit ServerJudge(const RewardSection& section)
      : Judge(section),
        url_(http::parse_url(*section.judge.url, "rewards: judge.url")),
        key_(key_of(section.judge)) {}

  void check_answers() override {
    const std::string where =
        str("rewards: ", section().label(), ": the judge at ", url_.str(), ": ");
    const double end =
        steady_seconds() + section().timeout_seconds + section().start_timeout_seconds;
    for (int tries = 1;; ++tries) {
      try {
        const auto client = connected();
        const std::string body = client->post(kChat, request(*client, section().judge.prompt, 1));
        check<ConfigError>(choice_in(body).is_object(), where,
                           "its answer has no `choices`, which a chat completion has");
        answered_ = true;
        return;
      } catch (const http::Failure& e) {
        const double pause = pause_after(e, tries);
        check<ConfigError>(may_pass(e) && tries < kTries && steady_seconds() + pause < end, where,
                           e.unreachable ? str("no answer (", e.what(), ")") : e.what(),
                           hint_for(e));
        std::this_thread::sleep_for(std::chrono::duration<double>(pause));
      } catch (const DataError& e) {
        throw ConfigError(where + e.what());
      }
    }
  }

 protected:
  void ask(const std::vector<std::string>& questions, const Take& take) override {
    std::mutex mutex;
    std::condition_variable arrived;
    std::vector<std::pair<size_t, Answer>> answers;
    std::atomic<size_t> next = 0;
    std::atomic<bool> gone = false;  // the server does not answer: others would wait in vain, too
    const auto work = [&] {
      std::unique_ptr<http::Client> client;
      for (size_t i; (i = next++) < questions.size();) {
        Answer answer = gone ? Answer(unreachable_) : answer_of(questions[i], client, gone);
        const std::lock_guard lock(mutex);
        answers.emplace_back(i, std::move(answer));
        arrived.notify_one();
      }
    };
    std::vector<std::jthread> threads;
    const size_t count = std::min(static_cast<size_t>(section().workers), questions.size());
    for (size_t i = 0; i < count; ++i) threads.emplace_back(work);
    for (size_t taken = 0; taken < questions.size();) {
      std::unique_lock lock(mutex);
      arrived.wait(lock, [&] { return !answers.empty(); });
      const auto some = std::exchange(answers, {});
      lock.unlock();
      for (const auto& [question, answer] : some) take(question, answer);
      taken += some.size();
    }
  }

 private:
  std::unique_ptr<http::Client> connected() const {
    const double seconds =
        section().timeout_seconds + (answered_ ? 0 : section().start_timeout_seconds);
    return std::make_unique<http::Client>(url_, key_, seconds);
  }

  // The first model that the server lists. Throws http::Failure.
  std::string model_of(http::Client& client) {
    const std::lock_guard lock(model_mutex_);
    if (!model_.empty()) return model_;
    const Json listed = parse_json(client.get("/v1/models"), "the judge's /v1/models");
    const Json* data = find_field(listed, "data");
    const Json* id =
        data && data->is_array() && !data->empty() ? find_field((*data)[0], "id") : nullptr;
    check<DataError>(id && id->is_string(), "its /v1/models lists no model");
    return model_ = id->get<std::string>();
  }

  // A chat completion of one question.
  std::string request(http::Client& client, const std::string& question, int64_t most_tokens) {
    return dump_json({{"model", model_of(client)},
                      {"messages", Json::array({{{"role", "user"}, {"content", question}}})},
                      {"temperature", 0},
                      {"max_tokens", most_tokens}});
  }

  // Whether the server may answer when it is asked again.
  static bool may_pass(const http::Failure& failure) {
    return failure.unreachable || failure.busy() || failure.status >= 500;
  }
  // Seconds until then.
  static double pause_after(const http::Failure& failure, int tries) {
    return std::min(failure.retry_after.value_or(0.25 * (1 << tries)), kLongestPause);
  }

  Answer answer_of(const std::string& question, std::unique_ptr<http::Client>& client,
                   std::atomic<bool>& gone) {
    const auto failed = [&](Verdict::Kind kind, const std::string& why) {
      return Verdict{kind, 0, str("the judge at ", url_.str(), ": ", why)};
    };
    const int64_t before = answers_;
    for (int tries = 1;; ++tries) {
      const double begun = steady_seconds();
      try {
        if (!client) client = connected();
        const std::string body =
            client->post(kChat, request(*client, question, section().judge.max_new_tokens));
        ++answers_;
        const auto words = words_in(body);
        if (!answered_.exchange(true)) client.reset();  // it has more time no longer
        if (words) return *words;
        return failed(Verdict::Kind::kMalformed, "its answer has no text in choices[0].message");
      } catch (const http::Failure& e) {
        client.reset();
        if (may_pass(e) && tries < kTries) {
          std::this_thread::sleep_for(std::chrono::duration<double>(pause_after(e, tries)));
          continue;
        }
        const bool late = e.unreachable && steady_seconds() - begun >= section().timeout_seconds;
        const Verdict verdict =
            failed(late ? Verdict::Kind::kTimedOut : Verdict::Kind::kCrashed, e.what());
        const bool silent = e.unreachable && (!late || answers_ == before);
        if (silent) {
          const std::lock_guard lock(model_mutex_);
          if (!gone) unreachable_ = verdict;
          gone = true;
        }
        return verdict;
      } catch (const DataError& e) {
        return failed(Verdict::Kind::kMalformed, e.what());
      }
    }
  }

  const http::ServerUrl url_;
  const std::string key_;
  std::atomic<bool> answered_ = false;
  std::atomic<int64_t> answers_ = 0;  // to any question
  std::mutex model_mutex_;
  std::string model_;
  Verdict unreachable_{Verdict::Kind::kCrashed, 0, "the judge's server does not answer"};
};

}  // namespace

std::unique_ptr<Reward> make_server_judge(const RewardSection& section) {
  return std::make_unique<ServerJudge>(section);
}

}  // namespace temper::rewards
