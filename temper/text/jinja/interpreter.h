// Runs the statements of a template and collects the text that they write.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "temper/text/jinja/evaluator.h"
#include "temper/text/jinja/parse/syntax.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/template.h"
#include "temper/text/jinja/variables.h"

namespace temper::jinja {

class Interpreter {
 public:
  // `options` outlives the interpreter. context: a dict.
  Interpreter(const RenderOptions& options, Value context);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Renders the whole template. Throws Failure; line() then tells where.
  Rendered run(const Body& body);
  int line() const { return runtime_.line(); }

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Capture;
  class Macro;

  Flow run_body(const Body& body);
  Flow run_statement(const Statement& statement);
  Flow run(const Text& node);
  Flow run(const Print& node);
  Flow run(const For& node);
  Flow run(const If& node);
  Flow run(const Assign& node);
  Flow run(const AssignBlock& node);
  Flow run(const DefineMacro& node);
  Flow run(const CallBlock& node);
  Flow run(const FilterBlock& node);
  Flow run(const With& node);
  Flow run(const Generation& node);
  Flow run(const Break&) { return Flow::kBreak; }
  Flow run(const Continue&) { return Flow::kContinue; }

  void check_namespaces(const Target& target);
  void assign(const Target& target, Value value);
  void write(std::string_view text);
  Value call_macro(const MacroDefinition& macro, const std::shared_ptr<Scope>& defined_in,
                   Arguments arguments);
  void bind_parameters(const MacroDefinition& macro, Arguments arguments);

  const RenderOptions& options_;
  Runtime runtime_;
  Variables variables_;
  Evaluator evaluator_;
  std::string result_;
  std::string* out_ = &result_;  // where text goes: the result, or what a block captures
  std::vector<std::pair<size_t, size_t>> generations_;
  bool has_unplaced_generation_ = false;
};

}  // namespace temper::jinja
