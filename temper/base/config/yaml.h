// A YAML document as a tree in which every node remembers where it was written, so that an error
// can say so. The text is hostile: its size, nesting, nodes and aliases are bounded, and duplicate
// keys, tags, merge keys and several documents in one file are errors. yaml-cpp scans and parses;
// it does not show outside yaml.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

// "run.yaml:12", or for an override "command line: rl.beta=0" (line 0).
struct YamlOrigin {
  std::shared_ptr<const std::string> source;
  int line = 0;
  std::string str() const;
};

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Entry;

  // Out of line: Entry holds a YamlNode, and is complete only below.
  YamlNode();
  YamlNode(const YamlNode&);
  YamlNode(YamlNode&&) noexcept;
  YamlNode& operator=(const YamlNode&);
  YamlNode& operator=(YamlNode&&) noexcept;
  ~YamlNode();

  Kind kind = Kind::kNull;
  std::string text;     // kScalar
  bool quoted = false;  // kScalar: written as "..." or '...' or as a block: text, never a number
  std::vector<YamlNode> items;  // kList
  std::vector<Entry> entries;   // kMap, as written; no key occurs twice
  YamlOrigin origin;

  static YamlNode null();
  static YamlNode scalar(std::string text, bool quoted = false);
  static YamlNode list(std::vector<YamlNode> items = {});
  static YamlNode map();

  // The value of a key of a map; null where there is none (or this is no map).
  const YamlNode* find(std::string_view key) const;
  YamlNode* find(std::string_view key);
  // "null", "a list", "a map", the scalar itself (shortened), as messages show what was found.
  std::string found() const;
};
struct YamlNode::Entry {
  std::string key;
  YamlOrigin origin;  // where the key was written
  YamlNode value;
  std::string comment;  // one line, written by dump_yaml, never read
};

// Parses one document; an empty one is null. `source` is a file's name (line numbers are counted
// from 1) or, with `whole_source`, everything that messages say ("command line: a=b"). Throws
// ConfigError.
YamlNode parse_yaml(std::string_view text, std::string source, bool whole_source = false);

// Lays `over` on `base`: maps merge key by key, everything else replaces.
void merge_yaml(YamlNode& base, YamlNode over);

// YAML that parse_yaml reads back to the same tree: maps and lists of maps in block style, lists of
// scalars in brackets. Strings are quoted where any YAML 1.1 or 1.2 reader could take them for
// something else.
std::string dump_yaml(const YamlNode& node);

// A value on one line: plain text, [a, b], {key: value}.
std::string on_one_line(const YamlNode& node);

}  // namespace temper
