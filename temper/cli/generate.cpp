// Completions of the prompts of a file, or of texts on the command line.
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/stopped.h"
#include "temper/cli/eval/episodes.h"
#include "temper/cli/parts/options.h"
#include "temper/cli/parts/output.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/parts/stream.h"
#include "temper/cli/parts/work.h"
#include "temper/generate/engine.h"

namespace temper::cli {
namespace {

class Generate : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Samples completions of prompts; with --environment or --tools multi-turn episodes, whose "
        "`reward` in the output is the environment's, and is absent where it returned none.\n"
        "examples:\n"
        "  temper generate --model DIR --input prompts.jsonl --output out.jsonl\n"
        "  temper generate --model DIR --prompt 'The capital of France is' --temperature 0\n"
        "  temper generate --model DIR --input prompts.jsonl --output out.jsonl --json-schema "
        "schema.json\n"
        "  temper generate --model DIR --adapter a=A --adapter b=B --input prompts.jsonl --output "
        "out.jsonl");
    model_.add_to(f, true);
    add_template_date(f, model_.template_date);
    input_.add_to(f, "tokens, prompt (text or messages) or messages; images; adapter");
    input_.add_prompts_as(f);
    f.add("--prompt", prompts_, "a text to complete, in place of --input; may be repeated");
    f.add("--output", output_,
          "file for the completions, in input order, or - for standard output; with --prompt and "
          "without --output, text is printed as it is sampled");
    sampling_.add_to(f);
    batch_.add_to(f);
    environment_.add_to(f);
    f.add("--timings", timings_,
          "print to standard error the sampling time in seconds and how many tokens were sampled, "
          "drafted and accepted");
  }

  int run() override {
    check<ConfigError>(input_.input.empty() != prompts_.empty(), "give either --input or --prompt");
    check<ConfigError>(!output_.empty() || !prompts_.empty(),
                       "--output is required with --input; - is standard output");
    environment_.check_no_beams(batch_);
    if (environment_.any()) section_ = environment_.section();
    check<ConfigError>(!environment_.any() || !output_.empty(),
                       "--output is required with an environment");
    std::optional<InputRows> rows;  // opened before the model is loaded
    if (!input_.input.empty()) rows.emplace(input_);
    say_what_is_used(model_.model, sampling_.options.sampling);
    const auto model = load(model_);
    tokenizer_ = find_tokenizer(model_.model);
    PromptReader reader(model_, tokenizer_, model->vocab_size);
    if (rows) rows_ = read_all(*rows, reader);
    for (const std::string& prompt : prompts_)
      rows_.push_back(reader.read({{"prompt", prompt}}, "--prompt"));
    adapters_ = adapters_of(model_, rows_);
    warn_beyond_positions(model_.model, rows_, sampling_.options.max_new_tokens);
    const double start = steady_seconds();
    const int64_t tokens = output_.empty() ? print(*model) : write(*model);
    if (timings_)
      std::cerr << "sampling_seconds " << steady_seconds() - start << "\nnew_tokens " << tokens
                << "\ndrafted_tokens " << drafts_.drafted_tokens << "\naccepted_tokens "
                << drafts_.accepted_tokens << "\n";
    return 0;
  }

 private:
  // These two return the number of tokens that were sampled.
  int64_t write(models::CausalLM& model) {
    OutputFile out(output_, input_.input);
    int64_t tokens = 0;
    try {
      if (environment_.any()) {
        tokens = write_episodes(
            {model, model_, section_, sampling_, batch_, tokenizer_, rows_, adapters_}, out);
        out.finish();
        return tokens;
      }
      drafts_ =
          sample(model, rows_, sampling_, batch_, tokenizer_, adapters_,
                 [&](const generate::Completion& c) {
                   OutputRow row{{"index", c.index},
                                 {"sample", c.sample},
                                 {"prompt_tokens", rows_[static_cast<size_t>(c.index)].tokens},
                                 {"tokens", c.tokens},
                                 {"logprobs", c.logprobs}};
                   write_images(rows_[static_cast<size_t>(c.index)].images, output_, row);
                   if (tokenizer_) row["text"] = c.text;
                   row["finish_reason"] = c.stopped ? "stop" : "length";
                   if (c.score) row["score"] = *c.score;
                   if (const int adapter = adapters_[static_cast<size_t>(c.index)]; adapter > 0)
                     row["adapter"] = model_.named[static_cast<size_t>(adapter) - 1].name;
                   out.row(row);
                   tokens += static_cast<int64_t>(c.tokens.size());
                 });
    } catch (const Interrupted&) {
      throw Stopped(out.stop());
    }
    out.finish();
    return tokens;
  }

  int64_t print(models::CausalLM& model) {
    if (batch_.beams.beams > 1) return print_beams(model);
    catch_interrupts();
    generate::Engine engine(model, batch_.engine.options, tokenizer_);
    for (size_t i = 0; i < rows_.size(); ++i) {
      const generate::Request request{static_cast<int64_t>(i), rows_[i].tokens, batch_.num_samples,
                                      sampling_.options, adapters_[i]};
      print_stream(engine, request, std::cout);
      check<Stopped>(!interrupted(), "stopped");
    }
    drafts_ = engine.statistics();
    return engine.statistics().new_tokens;
  }

  int64_t print_beams(models::CausalLM& model) {
    int64_t tokens = 0;
    sample(model, rows_, sampling_, batch_, tokenizer_, adapters_,
           [&](const generate::Completion& c) {
             std::cout << c.text << std::endl;
             tokens += static_cast<int64_t>(c.tokens.size());
           });
    return tokens;
  }

  ModelFlags model_;
  InputFlags input_;
  std::vector<std::string> prompts_;
  std::string output_;
  SamplingFlags sampling_;
  BatchFlags batch_;
  EnvironmentFlags environment_;
  env::EnvironmentSection section_;  // what its files say
  bool timings_ = false;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<data::PromptRow> rows_;
  std::vector<int> adapters_;  // of the rows
  generate::Speculation::Statistics drafts_;
};

}  // namespace

std::unique_ptr<Command> generate_command() { return std::make_unique<Generate>(); }

}  // namespace temper::cli
