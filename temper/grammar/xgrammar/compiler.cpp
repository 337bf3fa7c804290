// The functions of the plugin: XGrammar behind the interface of automaton.h.
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>
#include <thread>
#include <variant>

#include "support/logging.h"
#include "temper/grammar/automaton.h"

namespace temper::grammar {
namespace {

constexpr int64_t kCacheBytes = int64_t{256} << 20;

// Collects the warnings that XGrammar logs on this thread while it lives. Without one, they are
// dropped.
class LogOfThread {
 public:
  LogOfThread() { current = this; }
  ~LogOfThread() { current = nullptr; }
  LogOfThread(const LogOfThread&) = delete;
  LogOfThread& operator=(const LogOfThread&) = delete;
  static void add(const std::string& message) {
    if (current) current->warnings_.push_back(message);
  }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  static thread_local LogOfThread* current;
  std::vector<std::string> warnings_;
};
thread_local LogOfThread* LogOfThread::current = nullptr;

class State : public AutomatonState {
 public:
  explicit State(xgrammar::GrammarMatcher matcher) : matcher_(std::move(matcher)) {}
  void next_tokens(std::span<uint32_t> words) override {
    int64_t size = static_cast<int64_t>(words.size());
    DLTensor tensor{
        words.data(), DLDevice{kDLCPU, 0}, 1, xgrammar::GetBitmaskDLType(), &size, nullptr, 0};
    matcher_.FillNextTokenBitmask(&tensor);
  }
  bool accept(int32_t token) override { return matcher_.AcceptToken(token); }
  bool is_complete() const override { return matcher_.IsCompleted(); }
  std::unique_ptr<AutomatonState> fork() const override {
    return std::make_unique<State>(matcher_.Fork());
  }

 private:
  xgrammar::GrammarMatcher matcher_;
};

class Compiled : public Automaton {
 public:
  explicit Compiled(xgrammar::CompiledGrammar grammar) : grammar_(std::move(grammar)) {}
  std::unique_ptr<AutomatonState> start() const override {
    return std::make_unique<State>(xgrammar::GrammarMatcher(grammar_));
  }

 private:
  xgrammar::CompiledGrammar grammar_;
};

class Compiler : public AutomatonCompiler {
 public:
  explicit Compiler(const std::vector<std::string>& token_bytes)
      // The caller handles end tokens; XGrammar knows none.
      : xgrammar_(
            xgrammar::TokenizerInfo(token_bytes, xgrammar::VocabType::RAW,
                                    static_cast<int>(token_bytes.size()), std::vector<int32_t>()),
            static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u)), true,
            kCacheBytes) {}

  Outcome compile(Spec::Kind kind, const std::string& text) override {
    LogOfThread log;
    Outcome outcome;
    try {
      outcome.automaton = std::make_shared<const Compiled>(compiled(kind, text));
    } catch (const std::exception& e) {
      outcome.problem = *e.what() ? e.what() : "refused";
    }
    outcome.warnings = log.warnings();
    return outcome;
  }

 private:
  xgrammar::CompiledGrammar compiled(Spec::Kind kind, const std::string& text) {
    switch (kind) {
      case Spec::Kind::kRegex:
        return xgrammar_.CompileRegex(text);
      case Spec::Kind::kGrammar:
        return xgrammar_.CompileGrammar(text, "root");
      case Spec::Kind::kJsonSchema:
        break;
    }
    // Strict: objects have the properties that the schema names and no others, unless it says so.
    return xgrammar_.CompileJSONSchema(text, true, std::nullopt, std::nullopt,
                                       /*strict_mode=*/true, kMostBlanks);
  }

  xgrammar::GrammarCompiler xgrammar_;
};

}  // namespace
}  // namespace temper::grammar

// The library's own hooks, by its names.
namespace xgrammar {

namespace {
// An error without the source location that XGrammar's own message begins with.
class Refusal : public LogFatalError {
 public:
  using LogFatalError::LogFatalError;
  const char* what() const noexcept override { return std::runtime_error::what(); }
};
}  // namespace

void LogFatalImpl(const std::string& file, int line, const std::string& message) {
  throw Refusal(file, line, message);
}

void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  if (level >= XGRAMMAR_LOG_LEVEL_WARNING) temper::grammar::LogOfThread::add(message);
}

}  // namespace xgrammar

temper::grammar::AutomatonCompiler* temper_xgrammar_compiler(
    const std::vector<std::string>& token_bytes) {
  try {
    return new temper::grammar::Compiler(token_bytes);
  } catch (const std::exception&) {
    return nullptr;
  }
}

std::string temper_xgrammar_tags(const std::string& tag, std::string& problem) {
  temper::grammar::LogOfThread log;
  try {
    const auto made = xgrammar::Grammar::FromStructuralTag(tag);
    const auto* const grammar = std::get_if<xgrammar::Grammar>(&made);
    if (grammar && log.warnings().empty()) return grammar->ToString();
    problem =
        log.warnings().empty() ? "a structural tag that XGrammar refuses" : log.warnings().front();
  } catch (const std::exception& e) {
    problem = *e.what() ? e.what() : "refused";
  }
  return {};
}
