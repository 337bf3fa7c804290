// The template language of chat templates: the part of jinja2 that they use, rendered as
// transformers renders it (its immutable sandbox, trim_blocks, lstrip_blocks, loop controls, `{%
// generation %}`, its own tojson).
//
// Left out are the tags that need other templates (extends, include, import, block), recursive
// loops, and arithmetic with integers beyond 64 bits, which are printed as they are: they are
// refused, never approximated. A template and its variables may be hostile: work, memory, nesting
// and output are bounded.
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/json.h"

namespace temper::jinja {

// The machine's local time.
std::tm local_time();

struct RenderOptions {
  std::function<std::tm()> clock = local_time;  // the time that strftime_now formats
  size_t max_steps = 50'000'000;                // operations, about 0.1 us each
  // memory made in the course of the render, freed or not; allocators may take twice as much
  size_t max_bytes = size_t{256} << 20;
  size_t max_output = size_t{64} << 20;
};

struct Rendered {
  std::string text;
  // Byte ranges [begin, end) of `text` that `{% generation %}` blocks wrote, in order.
  std::vector<std::pair<size_t, size_t>> generations;
  // A generation block stood inside a macro or a captured block, where its place in the text is not
  // known.
  bool has_unplaced_generation = false;
};

class JinjaTemplate {
 public:
  // `name` stands for the file in errors. Throws DataError("NAME:LINE: ...") for a template that is
  // not well formed.
  static JinjaTemplate parse(std::string source, std::string name);
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;
  JinjaTemplate& operator=(JinjaTemplate&&) noexcept;

  // `context` is an object: the template's variables. Throws DataError("NAME:LINE: ..."), also when
  // the template calls raise_exception. May be used from any number of threads.
  std::string render(const Json& context, const RenderOptions& options = {}) const;
  Rendered render_with_spans(const Json& context, const RenderOptions& options = {}) const;

  // Whether `{% generation %}` occurs anywhere.
  bool has_generation() const;

 private:
  struct Impl;
  explicit JinjaTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace temper::jinja
