#include "temper/serve/status.h"

#include "temper/base/error.h"
#include "temper/serve/reply_json.h"

namespace temper::serve {

namespace {

ReplyJson about(const ServerOptions& options, const ServedModel& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "temper"},
          {"max_model_len", options.most_positions},
          {"vocab_size", options.format.vocabulary},
          {"cache_dtype", options.cache_dtype}};
}

}  // namespace

std::string model_text(const ServerOptions& options, const ServedModel& model) {
  return to_text(about(options, model));
}

std::string models_text(const ServerOptions& options) {
  ReplyJson data = ReplyJson::array();
  for (const ServedModel& model : options.models) data.push_back(about(options, model));
  return to_text({{"object", "list"}, {"data", std::move(data)}});
}

std::string metrics_text(const SamplerLoop::Counts& c) {
  std::string out;
  const auto add = [&](const char* name, const char* type, const char* help, int64_t value) {
    out += temper::str("# HELP temper_serve_", name, " ", help, "\n# TYPE temper_serve_", name, " ",
                       type, "\ntemper_serve_", name, " ", value, "\n");
  };
  add("requests_total", "counter", "Requests for completions that were taken.", c.requests);
  add("refused_requests_total", "counter", "Requests beyond the limit.", c.refused);
  add("open_requests", "gauge", "Requests that wait or are being answered.", c.open);
  add("prompt_tokens_total", "counter", "Tokens of prompts, each prompt once.", c.prompt_tokens);
  add("reused_prompt_tokens_total", "counter", "Of those, found in the prefix cache.",
      c.reused_tokens);
  add("generated_tokens_total", "counter", "Tokens that were sampled.", c.new_tokens);
  add("drafted_tokens_total", "counter", "Tokens that were drafted (--speculative).",
      c.drafted_tokens);
  add("accepted_tokens_total", "counter", "Of those, tokens that the sampler chose.",
      c.accepted_tokens);
  return out;
}

}  // namespace temper::serve
