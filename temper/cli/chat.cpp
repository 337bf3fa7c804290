// A conversation in the terminal.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/stopped.h"
#include "temper/cli/parts/options.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/parts/stream.h"
#include "temper/cli/parts/work.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/vision/image_rows.h"

namespace temper::cli {
namespace {

constexpr const char* kCommands =
    "/reset begins a new conversation, /system TEXT one with that system message, /image PATH puts "
    "an image before the next message's text; Ctrl-C stops an answer, Ctrl-D ends.";

class Chat : public Command {
 public:
  Chat() { sampling_.written.max_new_tokens = 1024; }

  void declare(Flags& f) override {
    f.about(
        temper::str("Talks with a model that has a chat template: a message a line, from the "
                    "terminal or from a file or program on standard input. The answers' keys and "
                    "values are kept, so that a next turn begins where the last one ended. "
                    "Sampling follows the model's generation_config.json; flags win.\n",
                    kCommands, "\nexample: temper chat --model runs/x/final --temperature 0.7"));
    model_.add_to(f);
    add_template_date(f, model_.template_date);
    f.add("--system", system_, "the system message");
    sampling_.add_to(f);
    add_cache_bytes(f, engine_);
  }

  int run() override {
    use_device(model_);  // what is wrong with a flag is said before what the model lacks
    models::HfConfig::load(model_.model);  // that it is a model at all, before what it lacks
    const auto tokenizer = find_tokenizer(model_.model);
    check<ConfigError>(tokenizer != nullptr, model_.model,
                       ": has no tokenizer.json, and a chat is text");
    check<ConfigError>(ChatTemplates(model_).of(0) != nullptr, model_.model,
                       ": has no chat template; temper generate --prompt completes text");
    sampling_.follow_suggested(model_.model);
    const auto model = load(model_);
    PromptReader reader(model_, tokenizer, model->vocab_size);
    sees_ = image_format(model_.model, tokenizer.get()) != nullptr;
    generate::Engine engine(*model, engine_, tokenizer);
    begin();
    const bool terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
    if (terminal) std::cout << kCommands << "\n";
    for (std::string line;;) {
      if (terminal) std::cout << "> " << std::flush;
      if (!std::getline(std::cin, line)) break;
      ++lines_;
      if (!obey(line, terminal)) answer(engine, reader, line, terminal);
    }
    if (terminal) std::cout << std::endl;
    refuse_waiting_images(terminal);
    return 0;
  }

 private:
  void begin() {
    messages_ = Json::array();
    images_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  // Whether the line is a command or empty; does what it says.
  bool obey(const std::string& line, bool terminal) {
    constexpr std::string_view kImage = "/image";
    if (line.empty()) return true;
    if (line == kImage || line.starts_with(std::string(kImage) + ' ')) {
      add_image(line.substr(std::min(line.find_first_not_of(' ', kImage.size()), line.size())),
                terminal);
      return true;
    }
    if (line == "/reset" || line == "/system" || line.starts_with("/system ")) {
      if (line != "/reset") system_ = line.size() > 8 ? line.substr(8) : "";
      begin();
      return true;
    }
    if (line.starts_with("/")) std::cerr << "unknown command; " << kCommands << std::endl;
    return line.starts_with("/");
  }

  // Images that cannot be read are refused before a message has them. A program's input cannot be
  // corrected, so there the error ends the chat.
  void add_image(const std::string& path, bool terminal) {
    try {
      check<DataError>(!path.empty(), "found no path, expected one, as in /image picture.png");
      check<DataError>(sees_, model_.model, ": the model does not see images");
      std::error_code ignored;
      const std::string here = std::filesystem::current_path(ignored).string();
      check<DataError>(is_data_uri(path) || path.find("://") != path.npos || is_file(path), path,
                       ": no such file (working directory: ", here, ")");
      Image::open({.text = path}, "")->decode();
      images_.push_back({{"type", "image"}, {"image", path}});
    } catch (const Error& e) {
      if (!terminal) throw DataError(str("standard input, line ", lines_, ": /image: ", e.what()));
      std::cerr << e.what() << std::endl;
    }
  }

  // At the end: images without a message, which the model was never asked about.
  void refuse_waiting_images(bool terminal) const {
    if (images_.empty()) return;
    const std::string problem = str("/image: no message follows ",
                                    images_.back()["image"].get<std::string>().substr(0, 200),
                                    ", so nothing was asked about it; write one on the next line");
    check<DataError>(terminal, "standard input, line ", lines_, ": ", problem);
    std::cerr << problem << std::endl;
  }

  // What the user says: the images that were added, then the line.
  Json content_of(const std::string& line) const {
    if (images_.empty()) return line;
    Json content = images_;
    content.push_back({{"type", "text"}, {"text", line}});
    return content;
  }

  void answer(generate::Engine& engine, PromptReader& reader, const std::string& line,
              bool terminal) {
    Json messages = messages_;
    messages.push_back({{"role", "user"}, {"content", content_of(line)}});
    catch_interrupts();
    try {
      reader.read_date();
      const data::PromptRow prompt = reader.read({{"messages", messages}}, "the conversation");
      warn_beyond_positions(model_.model, {&prompt, 1}, sampling_.options.max_new_tokens);
      generate::Request request{turn_++, prompt.tokens, 1, sampling_.options};
      request.rows = models::external_rows(prompt.images);
      const auto said = print_stream(engine, std::move(request), std::cout);
      messages.push_back({{"role", "assistant"}, {"content", said[0].text}});
      messages_ = std::move(messages);
      images_ = Json::array();
    } catch (const Error& e) {
      if (!terminal) throw;
      std::cerr << e.what() << std::endl;  // the conversation stays as it was before this message
    }
    check<Stopped>(!interrupted() || (terminal && interrupted_by_key()), "stopped");
    forget_interrupt();
  }

  ModelFlags model_;
  SamplingFlags sampling_;
  generate::EngineOptions engine_;
  std::string system_;

  Json messages_, images_;
  bool sees_ = false;
  int64_t lines_ = 0;  // read so far
  int64_t turn_ = 0;   // an answer's random numbers are its own
};

}  // namespace

std::unique_ptr<Command> chat_command() { return std::make_unique<Chat>(); }

}  // namespace temper::cli
