#include "temper/distill/teacher_server.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/distill/top_tokens.h"
#include "temper/generate/remote/server_pool.h"
#include "temper/http/client.h"
#include "temper/text/tokens.h"

namespace temper::distill {
namespace {

std::string key_of(const TeacherSection& teacher, const std::string& where) {
  return http::api_key_in(teacher.api_key_env, where + ": api_key_env");
}

// Of equal logits the lower id is the likelier, and different ones may become equal by being
// divided: so many more tokens are asked for at first than are kept.
constexpr int64_t kMoreTokens = 4;

int64_t asked_for(const DistillConfig& config, int64_t vocabulary) {
  const int64_t top_k = config.distill.top_k;
  return config.distill.temperature == 1 ? top_k : std::min(top_k + kMoreTokens, vocabulary);
}

// Whether the top_k likeliest at the temperature are among these: the last one is less likely then
// than all that are kept, and so are those behind it.
bool are_among(const ops::TopTokens& found, int64_t top_k, double temperature) {
  if (temperature == 1) return true;
  const at::Tensor scaled = found.logit / temperature;
  return (scaled.select(1, top_k - 1) > scaled.select(1, -1)).all().item<bool>();
}

// The top_k likeliest at the temperature, by their logits at temperature 1.
ops::TopTokens kept_tokens(const ops::TopTokens& found, int64_t top_k, double temperature) {
  if (found.id.size(1) == top_k && temperature == 1) return found;
  const at::Tensor by_id = std::get<1>(found.id.sort(1));
  const at::Tensor scaled = (found.logit / temperature).gather(1, by_id);
  const at::Tensor order = std::get<1>(scaled.sort(/*stable=*/true, 1, /*descending=*/true));
  const at::Tensor chosen = by_id.gather(1, order.narrow(1, 0, top_k));
  return {found.id.gather(1, chosen), found.logit.gather(1, chosen)};
}

std::string inspect_teacher(const DistillConfig& config, const TeacherSection& teacher,
                            const train::Policy& policy) {
  const std::string where = config.where("distill.teacher");
  const http::ServerUrl url = http::parse_url(*teacher.url, where);
  const int64_t own = policy.model->vocab_size;
  const auto fail = [&](const std::string& why) {
    throw ConfigError(str(where, ": the server at ", url.str(), ": ", why));
  };
  if (config.distill.top_k >= own)
    config.fail("distill.top_k",
                str("found ", config.distill.top_k, " with a teacher behind a url, expected less ",
                    "than the vocabulary's ", own, " tokens"));
  http::Client http(url, key_of(teacher, where), teacher.timeout_seconds);
  const std::string another = "the teacher's vocabulary is another one: ";
  try {
    const Json about = parse_json(http.get(kTopTokens), "its answer");
    check<DataError>(about.is_object() && about.value("vocab_size", Json()).is_number_integer(),
                     "its answer lacks `vocab_size`");
    if (about["vocab_size"] != own)
      fail(str(another, "it has ", dump_json(about["vocab_size"]), " tokens, the student's ", own));
    const Json digest = about.value("tokens_digest", Json()), name = about.value("model", Json());
    if (policy.tokenizer && digest.is_string() && digest != "") {
      const std::string students = digest_of_tokens(*policy.tokenizer);
      if (digest != students)
        fail(str(another, "its tokens have the SHA-256 ", digest.get<std::string>(),
                 ", the student's ", students));
    }
    train::ForwardPass one;
    one.forest->add_root(std::vector<int32_t>{0});
    one.row_M = {0};
    const int64_t k = asked_for(config, own);
    parse_top_tokens_bytes(http.post(kTopTokens, top_tokens_body(one, k)), 1, k, own);
    return name.is_string() ? name.get<std::string>() : "a model";
  } catch (const http::Failure& e) {
    if (e.unreachable)
      fail(str("no answer (", e.what(), "); start it first: temper serve --model TEACHER"));
    fail(str(e.what(), e.status == 404 ? "; a teacher needs a temper serve with this route" : ""));
  } catch (const DataError& e) {
    fail(e.what());
  }
  return {};
}

class TeacherServer : public RemoteTeacher {
 public:
  TeacherServer(const DistillConfig& config, const TeacherSection& teacher,
                const train::Policy& policy)
      : top_k_(config.distill.top_k),
        asked_(asked_for(config, policy.model->vocab_size)),
        vocabulary_(policy.model->vocab_size),
        temperature_(config.distill.temperature) {
    const std::string where = config.where("distill.teacher");
    const http::ServerUrl url = http::parse_url(*teacher.url, where);
    name_ = str("distill.teacher: ", url.str());
    pool_ = std::make_unique<generate::remote::ServerPool>(
        generate::remote::PoolOptions{.servers = {{url, key_of(teacher, where), name_}},
                                      .timeout_seconds = teacher.timeout_seconds},
        generate::remote::make_protocol("openai", vocabulary_));
  }

  ops::TopTokens top_tokens(const train::ForwardPass& pass) override {
    check<ConfigError>(pass.forest->rows.empty(), name_,
                       ": the rows have images, which a teacher behind a url does not see");
    const int64_t count = pass.num_targets();
    if (count == 0) return parse_top_tokens_bytes("", 0, top_k_, vocabulary_);
    for (int64_t asked = asked_;; asked = std::min(2 * asked, vocabulary_)) {
      const ops::TopTokens found = ask(pass, asked);
      if (asked == vocabulary_ || are_among(found, top_k_, temperature_))
        return kept_tokens(found, top_k_, temperature_);
    }
  }

 private:
  ops::TopTokens ask(const train::ForwardPass& pass, int64_t count) {
    const std::string bytes = pool_->post(kTopTokens, top_tokens_body(pass, count), 0);
    try {
      return parse_top_tokens_bytes(bytes, pass.num_targets(), count, vocabulary_);
    } catch (const DataError& e) {
      throw RunError(str(name_, ": ", e.what()));
    }
  }

  int64_t top_k_, asked_, vocabulary_;
  double temperature_;
  std::string name_;
  std::unique_ptr<generate::remote::ServerPool> pool_;
};

}  // namespace

std::unique_ptr<RemoteTeacher> open_teacher_server(const DistillConfig& config,
                                                   const TeacherSection& teacher,
                                                   const train::Policy& policy) {
  inspect_teacher(config, teacher, policy);
  return std::make_unique<TeacherServer>(config, teacher, policy);
}

std::string describe_teacher_server(const DistillConfig& config, const TeacherSection& teacher,
                                    const train::Policy& policy) {
  return str(*teacher.url, ": ", inspect_teacher(config, teacher, policy), ", its ",
             config.distill.top_k, " likeliest tokens");
}

}  // namespace temper::distill
