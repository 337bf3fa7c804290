// The template language against jinja2 as transformers sets it up, and its bounds on hostile
// templates. Goldens: tests/golden/make_template_goldens.py.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/text/jinja/template.h"
#include "tests/golden.h"

using namespace temper;
using jinja::JinjaTemplate;
using jinja::RenderOptions;

namespace {

std::tm golden_time() {
  std::tm time{};
  time.tm_year = 124, time.tm_mon = 6, time.tm_mday = 26, time.tm_wday = 5, time.tm_yday = 207;
  time.tm_hour = 13, time.tm_min = 5, time.tm_sec = 9;
  return time;
}

RenderOptions expression_options() {
  RenderOptions options;
  options.clock = golden_time;
  return options;
}

std::string render(const std::string& source, const Json& context = Json::object(),
                   const RenderOptions& options = {}) {
  return JinjaTemplate::parse(source, "chat.jinja").render(context, options);
}

// The message of the DataError that rendering throws; empty when it does not throw.
std::string render_error(const std::string& source, const RenderOptions& options = {}) {
  try {
    render(source, Json::object(), options);
  } catch (const DataError& e) {
    return e.what();
  }
  return {};
}

std::string repeated(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

}  // namespace

TEST_CASE("snippets render as in jinja2, or fail where it fails") {
  const Json file = read_json_file(golden_path("templates/expressions.json"));
  REQUIRE(file.at("rows").size() > 600);
  for (const Json& row : file.at("rows")) {
    const auto source = row[0].get<std::string>();
    CAPTURE(source);
    Json text;
    std::string error;
    try {
      text = render(source, file.at("context"), expression_options());
    } catch (const DataError& e) {
      error = e.what();
    }
    CAPTURE(error);
    CHECK(text == row[1]);
  }
}

TEST_CASE("an error names the template, its line and the cause") {
  CHECK(render_error("a\n{{ 1 }}\n{{ 'x' + 1 }}") ==
        "chat.jinja:3: unsupported operand type(s) for +: 'str' and 'int'");
  CHECK(render_error("\n{% if x %}\n") ==
        "chat.jinja:2: template syntax error: unexpected end of template; looking for 'elif'");
  CHECK(render_error("{{ raise_exception('Roles must alternate!') }}") ==
        "chat.jinja:1: Roles must alternate!");
  CHECK(render_error("{% macro m(x) %}\n{{ x.y.z }}{% endmacro %}\n\n{{ m({}) }}") ==
        "chat.jinja:2: 'dict object' has no attribute 'y'");
  CHECK(render_error("{{ [].append(1) }}") ==
        "chat.jinja:1: access to attribute 'append' of 'list' object is unsafe.");
  CHECK(render_error("\xff") == "chat.jinja: not valid UTF-8");
}

TEST_CASE("generation spans count bytes of what is written") {
  const auto source =
      "é{% for m in [1, 2] %}[{% generation %}{{ m }}ü{% endgeneration %}]{% endfor %}";
  const auto t = JinjaTemplate::parse(source, "t");
  CHECK(t.has_generation());
  const auto rendered = t.render_with_spans(Json::object());
  CHECK(rendered.text == "é[1ü][2ü]");
  CHECK(rendered.generations == std::vector<std::pair<size_t, size_t>>{{3, 6}, {8, 11}});
  CHECK_FALSE(rendered.has_unplaced_generation);

  const auto inside = JinjaTemplate::parse(
      "{% macro m() %}{% generation %}a{% endgeneration %}{% endmacro %}{{ m() }}", "t");
  CHECK(inside.has_generation());
  CHECK(inside.render_with_spans(Json::object()).has_unplaced_generation);
}

TEST_CASE("integers of the context keep their value") {
  CHECK(render("{{ x }} {{ y }}", {{"x", INT64_MAX}, {"y", INT64_MIN}}) ==
        "9223372036854775807 -9223372036854775808");
  CHECK(render("{{ x }}", {{"x", UINT64_MAX}}) == "18446744073709551615");
  CHECK(render_error("{{ 9223372036854775807 + 1 }}").ends_with("beyond 64 bits"));
}

TEST_CASE("by default a template makes at most 256 MiB, freed or not") {
  CHECK(render_error("{% for i in range(300) %}{% set x = 'a' * 1000000 %}{% endfor %}")
            .find("memory") != std::string::npos);
  CHECK(render("{% for i in range(100) %}{% set x = 'a' * 1000000 %}{% endfor %}").empty());
}

TEST_CASE("work, memory, output and nesting of a hostile template are bounded") {
  RenderOptions options;
  options.max_steps = 200'000;
  options.max_bytes = 1 << 20;
  options.max_output = 1 << 16;
  const auto refused = [&](const std::string& source) {
    CAPTURE(source.substr(0, 100));
    return !render_error(source, options).empty();
  };
  // Time.
  CHECK(refused("{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}"));
  CHECK(refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"));
  CHECK(
      refused("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ "
              "f(30) }}"));
  // Memory.
  CHECK(refused("{{ ('x' * 1000000000)|length }}"));
  CHECK(refused("{{ ([1] * 1000000000)|length }}"));
  CHECK(refused("{{ '%1000000000d' % 1 }}"));
  CHECK(refused("{{ '{:>1000000000}'.format(1) }}"));
  CHECK(refused("{{ 'x'|center(1000000000) }}"));
  CHECK(refused("{{ 'a'|indent(1000000000, true) }}"));
  CHECK(
      refused("{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s "
              "%}{% endfor %}"));
  CHECK(refused("{{ 'aaaaaaaaaa'|replace('a', 'b' * 10000)|replace('b', 'c' * 10000) }}"));
  // A value of few parts whose text would be exponentially long.
  CHECK(
      refused("{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] "
              "%}{% endfor %}{{ ns.l }}"));
  CHECK(
      refused("{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] "
              "%}{% endfor %}{{ ns.l|tojson }}"));
  CHECK(refused(
      "{% set a = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set a.l = [a.l, a.l] %}"
      "{% set a.m = [a.m, a.m] %}{% endfor %}{{ a.l == a.m }}"));
  // Output.
  CHECK(refused("{% for a in range(10000) %}{{ 'x' * 100 }}{% endfor %}"));
  // Nesting, of values and of the template.
  CHECK(
      refused("{% set ns = namespace(l=1) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% "
              "endfor %}"));
  CHECK(
      refused("{% set ns = namespace(l=1) %}{% for i in range(5000) %}{% set ns.l = cycler(ns.l) "
              "%}{% endfor %}"));
  CHECK(refused("{{ " + repeated("(", 100000) + "1" + repeated(")", 100000) + " }}"));
  CHECK(refused("{{ " + repeated("[", 100000)));
  CHECK(refused("{{ " + repeated("not ", 100000) + "1 }}"));
  CHECK(refused("{{ " + repeated("-", 100000) + "1 }}"));
  CHECK(refused("{{ 1" + repeated("+1", 100000) + " }}"));
  CHECK(refused("{{ 1" + repeated("|string", 100000) + " }}"));
  CHECK(refused("{{ x" + repeated(".a", 100000) + " }}"));
  CHECK(refused(repeated("{% if 1 %}", 100000)));
  // What a real template does fits.
  CHECK(render("{% for a in range(1000) %}{{ 'x' * 10 }}{% endfor %}", Json::object(), options)
            .size() == 10000);
}

TEST_CASE("what a template may change does not outlive it") {
  // Cycles through namespaces, macros and loops; the address sanitizer sees them when they leak.
  CHECK(
      render(
          "{% set ns = namespace() %}{% set ns.a = [ns] %}{% macro m() %}{{ ns }}{% endmacro %}"
          "{% set ns.m = m %}{% for i in [1, 2] %}{% set ns.loop = loop %}{{ loop.changed(loop) }}"
          "{% endfor %}{{ ns.a[0] is sameas ns }}") == "TrueFalseTrue");
  // A loop kept beyond its end has no more items, and a macro's scope is gone with its block.
  CHECK(render("{% set ns = namespace() %}{% for i in [1, 2] %}{% set ns.l = loop %}{% break %}{% "
               "endfor %}"
               "{% for x in ns.l %}{{ x }}{% endfor %}.") == ".");
  CHECK_FALSE(render_error(
                  "{% set ns = namespace() %}{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}"
                  "{% set ns.m = m %}{% endfor %}{{ ns.m() }}")
                  .empty());
}

TEST_CASE("integers beyond 64 bits are printed as Python prints them") {
  const auto render = [](const std::string& source, const Json& context) {
    return JinjaTemplate::parse(source, "t").render(context);
  };
  const Json beyond = Json::parse(R"({"n": 18446744073709551615, "list": [9223372036854775808]})");
  CHECK(render("{{ n }} {{ list }} {{ n|tojson }} {{ {'k': n}|tojson }} {{ n|string|length }}",
               beyond) ==
        "18446744073709551615 [9223372036854775808] 18446744073709551615 "
        "{\"k\": 18446744073709551615} 20");
  CHECK(render("{{ n == 18446744073709551615 }} {{ n == 1 }} {{ n is number }} {{ n is integer }} "
               "{{ n is string }} {{ 'x' if n }}",
               beyond) == "True False True True False x");
  const std::string digits = "123456789012345678901234567890";
  CHECK(render("{{ {\"n\": " + digits + "} }} {{ -" + digits + " }}", Json::object()) ==
        "{'n': " + digits + "} -" + digits);
  const Json parsed =
      parse_json("{\"n\": [" + digits + ", -" + digits + "]}", "test", BigIntegers::kKept);
  CHECK(render("{{ n }} {{ n|tojson }} {{ n[0] == " + digits + " }}", parsed) ==
        "[" + digits + ", -" + digits + "] [" + digits + ", -" + digits + "] True");
  CHECK(dump_json(parsed) == "{\"n\":[" + digits + ",-" + digits + "]}");
  CHECK(dump_json(parse_json("[1e30, 1]", "test", BigIntegers::kKept)) == "[1e+30,1]");
  CHECK(parse_json(digits, "test").is_number_float());
  CHECK(render("{{ 1_000_000_000_000_000_000_000 }}", Json::object()) == "1000000000000000000000");
  CHECK_THROWS_AS(render("{{ n + 1 }}", beyond), DataError);
  CHECK_THROWS_AS(render("{{ range(n) }}", beyond), DataError);
}
