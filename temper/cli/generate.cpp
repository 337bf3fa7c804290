#include <ATen/ATen.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/cli/progress.h"
#include "temper/cli/work.h"
#include "temper/data/jsonl.h"
#include "temper/generate/engine.h"
#include "temper/text/chat_template.h"

namespace temper::cli {
namespace {

std::vector<int32_t> read_prompt(const Json& row, const std::string& model_dir,
                                 const Tokenizer* tokenizer, int64_t vocabulary,
                                 const std::string& where) {
  if (row.contains("tokens")) return token_field(row, "tokens", vocabulary, where);
  check<DataError>(row.contains("prompt") || row.contains("messages"), where,
                   ": expected `tokens`, `prompt` or `messages`");
  check<DataError>(
      tokenizer != nullptr, where,
      ": text needs a tokenizer, and the model directory has no tokenizer.json; give `tokens`");
  if (row.contains("prompt")) {
    check<DataError>(row["prompt"].is_string(), where, ": `prompt` must be text");
    return tokenizer->encode(row["prompt"].get<std::string>());
  }
  static const ChatTemplate chat = ChatTemplate::load(model_dir);
  try {
    return tokenizer->encode(
        chat.render(row["messages"], row.contains("tools") ? row["tools"] : Json(), true));
  } catch (const DataError& e) {
    throw DataError(where + ": " + e.what());
  }
}

}  // namespace

int run_generate(const Arguments& arguments) {
  CLI::App app(
      "Samples completions of prompts.\nexample: temper generate --model DIR --input prompts.jsonl "
      "--output out.jsonl",
      "generate");
  ModelFlags flags;
  std::string input, output;
  SamplingFlags sampling;
  int64_t beams = 1;
  bool timings = false;
  flags.add_to(app);
  app.add_option("--input", input, "rows: tokens, prompt or messages")->required();
  app.add_option("--output", output, "where the completions go, in input order")->required();
  sampling.add_to(app);
  app.add_flag("--timings", timings, "print what was sampled in which time");
  app.add_option("--beams", beams, "1: no beam search")->check(at_least_one());
  if (!parse_flags(app, arguments)) return 0;
  check<ConfigError>(beams == 1, "--beams ", beams,
                     ": beam search is not in this build; expected 1");

  data::RowReader rows(input);
  const auto model = load(flags);
  const auto tokenizer = find_tokenizer(flags.model);
  std::vector<std::vector<int32_t>> prompts;
  Json row;
  while (rows.next(row)) {
    prompts.push_back(
        read_prompt(row, flags.model, tokenizer.get(), model->vocab_size, rows.where()));
    check<DataError>(!prompts.back().empty(), rows.where(), ": the prompt has no tokens");
  }
  OutputFile out(output);
  const auto start = std::chrono::steady_clock::now();
  int64_t sampled = 0;
  const auto write = [&](const generate::Completion& c) {
    std::string line =
        temper::str("{\"index\":", c.index, ",\"sample\":", c.sample,
                    ",\"prompt_tokens\":", json_list(prompts[static_cast<size_t>(c.index)]),
                    ",\"tokens\":", json_list(c.tokens), ",\"logprobs\":", json_list(c.logprobs));
    if (tokenizer) line += ",\"text\":" + dump_json(Json(c.text));
    out.line(line + ",\"finish_reason\":\"" + (c.stopped ? "stop" : "length") + "\"}");
  };
  catch_interrupts();
  Progress progress("sampled", static_cast<int64_t>(prompts.size()) * sampling.num_samples);
  try {
    generate::generate(
        *model, prompts, sampling.num_samples, sampling.options,
        [&](const generate::Completion& c) {
          progress.advance(1, 0);
          write(c);
        },
        tokenizer,
        [&](const generate::Completion&) {
          if (interrupted()) throw Interrupted();
          ++sampled;
          progress.advance(0, 1);
        });
  } catch (const Interrupted&) {
    throw RunError(out.stop());
  }
  out.finish();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (timings) std::cerr << "sampling_seconds " << seconds << "\nnew_tokens " << sampled << "\n";
  return 0;
}

}  // namespace temper::cli
