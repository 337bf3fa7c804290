#include <algorithm>
#include <cctype>

#include "temper/base/config/yaml.h"
#include "temper/base/error.h"

namespace temper {
namespace {
bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Whether every YAML reader takes this unquoted text for one plain scalar.
bool is_plain_scalar(std::string_view text) {
  if (text.empty() || text.size() > 200 || text.front() == '~') return text == "~";
  if (text.front() == '-' && (text.size() == 1 || !(is_digit(text[1]) || text[1] == '.')))
    return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return is_letter(c) || is_digit(c) || is_one_of(c, "+-._/"); }) &&
         text.find_first_not_of('.') != std::string_view::npos;
}

// Whether a string may go without quotes: it looks like no number and no word of YAML 1.1.
bool is_word(std::string_view text) {
  static constexpr std::string_view kWords[] = {"null", "true", "false", "yes", "no",
                                                "on",   "off",  "y",     "n"};
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return is_plain_scalar(text) && (is_letter(text.front()) || is_one_of(text.front(), "_/")) &&
         std::find(std::begin(kWords), std::end(kWords), lower) == std::end(kWords);
}

std::string quote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (byte < 0x20 || byte == 0x7f)
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    else
      out += c;
  }
  return out + '"';
}

std::string dump_scalar(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kNull) return "null";
  return (node.quoted ? is_word(node.text) : is_plain_scalar(node.text)) ? node.text
                                                                         : quote(node.text);
}

bool is_nested(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kList || node.kind == YamlNode::Kind::kMap;
}

// Whether a value stands on its key's line.
bool is_inline(const YamlNode& node) {
  return node.entries.empty() && std::none_of(node.items.begin(), node.items.end(), is_nested);
}

std::string dump_inline(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kMap) return "{}";
  if (node.kind != YamlNode::Kind::kList) return dump_scalar(node);
  std::string out = "[";
  for (const YamlNode& item : node.items) out += (out.size() > 1 ? ", " : "") + dump_scalar(item);
  return out + "]";
}

// Lines of a block, each indented; the first one's indent is left out after "- ".
void dump_block(const YamlNode& node, size_t indent, bool indent_first, std::string& out) {
  const auto start_line = [&] {
    if (indent_first) out.append(indent, ' ');
    indent_first = true;
  };
  for (const YamlNode::Entry& entry : node.entries) {
    start_line();
    YamlNode key = YamlNode::scalar(entry.key, true);
    out += dump_scalar(key) + ":";
    if (is_inline(entry.value)) out += " " + dump_inline(entry.value);
    if (!entry.comment.empty()) out += "  # " + entry.comment;
    out += "\n";
    if (!is_inline(entry.value)) dump_block(entry.value, indent + 2, true, out);
  }
  for (const YamlNode& item : node.items) {
    start_line();
    out += "- ";
    if (is_inline(item))
      out += dump_inline(item) + "\n";
    else
      dump_block(item, indent + 2, false, out);
  }
}
}  // namespace

std::string YamlNode::found() const {
  if (kind == Kind::kNull) return "null";
  if (kind == Kind::kList) return "a list";
  if (kind == Kind::kMap) return "a map";
  std::string shown = text;
  if (shown.size() > 60) {
    size_t end = 57;
    while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xc0) == 0x80)
      --end;  // whole UTF-8 characters
    shown = shown.substr(0, end) + "...";
  }
  return quoted || shown.empty() || shown.find('\n') != std::string::npos ? quote(shown) : shown;
}

std::string dump_yaml(const YamlNode& node) {
  if (is_inline(node)) return dump_inline(node) + "\n";
  std::string out;
  dump_block(node, 0, true, out);
  return out;
}

std::string on_one_line(const YamlNode& node) {
  std::string out;
  if (node.kind == YamlNode::Kind::kList) {
    for (const YamlNode& item : node.items) out += (out.empty() ? "" : ", ") + on_one_line(item);
    return "[" + out + "]";
  }
  if (node.kind == YamlNode::Kind::kMap) {
    for (const YamlNode::Entry& entry : node.entries)
      out += str(out.empty() ? "" : ", ", entry.key, ": ", on_one_line(entry.value));
    return "{" + out + "}";
  }
  out = dump_yaml(node);
  out.pop_back();
  return out;
}

}  // namespace temper
