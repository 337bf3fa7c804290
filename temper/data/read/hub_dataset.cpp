#include "temper/data/read/hub_dataset.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "temper/base/config/yaml.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/hub_cache.h"
#include "temper/data/read/row_set.h"

namespace temper::data {
namespace {
namespace fs = std::filesystem;

using Patterns = std::vector<std::string>;
// Config -> split -> patterns of its files, relative to the snapshot.
using Layout = std::map<std::string, std::map<std::string, Patterns>>;

constexpr size_t kMaxReadme = 4 << 20, kMaxCardFiles = 100'000;
constexpr int64_t kMaxStars = 8;  // of a pattern: matching takes exponential time in them

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// The files below a snapshot whose names are those of rows, as paths relative to it. Links to
// directories are not followed.
Patterns files_below(const std::string& snapshot) {
  Patterns files;
  std::error_code problem;
  fs::recursive_directory_iterator it(snapshot, problem);
  for (const fs::recursive_directory_iterator end; !problem && it != end; it.increment(problem)) {
    std::error_code broken_link;
    if (is_row_file(it->path().filename().string()) && fs::is_regular_file(it->path(), broken_link))
      files.push_back(it->path().lexically_relative(snapshot).string());
    check<DataError>(files.size() <= kMaxCardFiles, snapshot, ": more than ", kMaxCardFiles,
                     " files");
  }
  check<DataError>(!problem, snapshot, ": cannot read the directory: ", problem.message());
  std::sort(files.begin(), files.end());
  return files;
}

Patterns patterns_of(const YamlNode* node) {
  if (node == nullptr) return {};
  if (node->kind == YamlNode::Kind::kScalar) return {node->text};
  Patterns patterns;
  for (const YamlNode& item : node->items)
    if (item.kind == YamlNode::Kind::kScalar) patterns.push_back(item.text);
  return patterns;
}

// `configs` of the metadata at the head of README.md; nothing where it has none that can be read.
// `preferred` becomes the config that is called default or marked as such.
Layout layout_of_readme(const std::string& snapshot, std::string& preferred) {
  Layout layout;
  std::error_code none;
  if (!fs::exists(snapshot + "/README.md", none)) return layout;
  const std::string text = read_file(snapshot + "/README.md", kMaxReadme);
  const size_t end = text.find("\n---", 3);
  if (!text.starts_with("---") || end == text.npos) return layout;
  YamlNode card;
  try {
    card = parse_yaml(text.substr(3, end - 3), snapshot + "/README.md");
  } catch (const ConfigError&) {
    return layout;  // written for other readers of YAML
  }
  const YamlNode* configs = card.find("configs");
  if (configs == nullptr) return layout;
  for (const YamlNode& config : configs->items) {
    const YamlNode *name = config.find("config_name"), *files = config.find("data_files");
    const YamlNode* folder = config.find("data_dir");
    const std::string called = name ? name->text : "default";
    if (const YamlNode* marked = config.find("default");
        called == "default" || (marked && marked->text == "true"))
      preferred = called;
    auto& splits = layout[called];
    if (files == nullptr) {
      if (folder != nullptr) splits["train"] = {folder->text + "/**"};
      continue;
    }
    bool named = false;
    for (const YamlNode& item : files->items)
      if (const YamlNode* split = item.find("split")) {
        splits[split->text] = patterns_of(item.find("path"));
        named = true;
      }
    for (const YamlNode::Entry& entry : files->entries) {  // {train: pattern, test: pattern}
      splits[entry.key] = patterns_of(&entry.value);
      named = true;
    }
    if (!named) splits["train"] = patterns_of(files);
  }
  return layout;
}

// The split that a word of a path names, as `datasets` reads them; empty: none.
std::string split_of(const std::string& path) {
  static const std::map<std::string, std::string> words = {
      {"train", "train"},      {"training", "train"}, {"validation", "validation"},
      {"valid", "validation"}, {"dev", "validation"}, {"val", "validation"},
      {"test", "test"},        {"testing", "test"},   {"eval", "test"},
      {"evaluation", "test"}};
  // train_sft-00000-of-00001.parquet: a split of any name, in numbered parts.
  static const std::regex numbered("([A-Za-z0-9_.]+)-[0-9]{5}-of-[0-9]{5}[^/]*");
  std::smatch parts;
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name.size() < 256 && std::regex_match(name, parts, numbered)) return parts[1];
  std::string word, found;
  for (const char c : path + ".") {
    if (std::isalpha(static_cast<unsigned char>(c))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (const auto at = words.find(word); at != words.end()) found = at->second;
    word.clear();
  }
  return found;
}

// Where README.md says nothing: the first folder is the config, except `data` and those that name a
// split. Files that name no split are `train` where none does, and else belong to none.
Layout layout_of_names(const Patterns& files) {
  Layout layout;
  const bool splits = std::any_of(files.begin(), files.end(),
                                  [](const std::string& file) { return !split_of(file).empty(); });
  for (const std::string& file : files) {
    const size_t slash = file.find('/');
    const std::string folder = slash == file.npos ? "" : file.substr(0, slash);
    const bool is_config = !folder.empty() && folder != "data" && split_of(folder).empty();
    const std::string split = split_of(file);
    if (splits && split.empty()) continue;
    layout[is_config ? folder : "default"][split.empty() ? "train" : split].push_back(file);
  }
  return layout;
}

// Whether a path matches a pattern of which `**` is any number of folders, none included.
bool matches(std::string_view pattern, std::string_view path) {
  if (pattern.starts_with("./")) pattern.remove_prefix(2);
  if (pattern == path) return true;  // a name with characters that patterns use
  const size_t folder = pattern.find('/'), next = path.find('/');
  const std::string part(pattern.substr(0, folder));
  if (part == "**") {
    if (folder == pattern.npos) return true;
    return matches(pattern.substr(folder + 1), path) ||
           (next != path.npos && matches(pattern, path.substr(next + 1)));
  }
  if (::fnmatch(part.c_str(), std::string(path.substr(0, next)).c_str(), 0) != 0) return false;
  if (folder == pattern.npos || next == path.npos) return folder == next;
  return matches(pattern.substr(folder + 1), path.substr(next + 1));
}

// The parts that names like train-00000-of-00005.parquet say there are, and that are not there: an
// interrupted download.
std::string missing_part(const std::vector<std::string>& files) {
  static const std::regex numbered("(.*-)([0-9]{1,9})(-of-)([0-9]{1,9})([^/]*)");
  const std::set<std::string> there(files.begin(), files.end());
  for (const std::string& file : files) {
    std::smatch parts;
    const std::string name = file.substr(file.rfind('/') + 1);
    if (!std::regex_match(name, parts, numbered)) continue;
    const std::string digits = parts[2];
    const int64_t count = std::min<int64_t>(std::stoll(parts[4]), kMaxCardFiles);
    for (int64_t part = 0; part < count; ++part) {
      std::string number = std::to_string(part);
      number.insert(0, digits.size() - std::min(digits.size(), number.size()), '0');
      std::string other =
          parts[1].str() + number + parts[3].str() + parts[4].str() + parts[5].str();
      if (!there.contains(file.substr(0, file.rfind('/') + 1) + other)) return other;
    }
  }
  return {};
}

template <class Map>
std::set<std::string> names_of(const Map& map) {
  std::set<std::string> names;
  for (const auto& [name, value] : map) names.insert(name);
  return names;
}

}  // namespace

std::optional<DatasetId> parse_dataset_id(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == text.npos) return {};
  DatasetId dataset;
  const size_t colon = text.find(':', slash);
  const size_t end = colon != text.npos ? text.find('/', colon) : text.find('/', slash + 1);
  dataset.id = text.substr(0, std::min(colon, end));
  if (colon != text.npos)
    dataset.config = text.substr(colon + 1, end == text.npos ? end : end - colon - 1);
  if (end != text.npos) dataset.split = text.substr(end + 1);
  if (!is_hub_id(dataset.id) || !is_hub_name(dataset.split) ||
      (colon != text.npos && !is_hub_name(dataset.config)) || is_row_file(std::string(text)))
    return {};
  return dataset;
}

std::vector<std::string> dataset_files(const DatasetId& dataset) {
  const std::string snapshot = hub_snapshot(HubKind::kDataset, dataset.id);
  const std::string fetch = hub_fetch_command(HubKind::kDataset, dataset.id);
  std::error_code none;
  check<ConfigError>(fs::is_directory(snapshot, none), dataset.id, ": its snapshot ", snapshot,
                     " is missing; fetch it again with `", fetch, "`");
  Patterns files = files_below(snapshot);
  std::string config = dataset.config, preferred;
  Layout layout = layout_of_readme(snapshot, preferred);
  if (layout.empty()) {  // nobody says which .json are rows
    std::erase_if(files, [&](const auto& file) { return !holds_rows(snapshot + "/" + file); });
    layout = layout_of_names(files);
  }
  check<ConfigError>(!files.empty(), dataset.id, ": its snapshot ", snapshot,
                     " has no file of rows (.jsonl, .ndjson, .parquet, .csv, .tsv, .json); fetch ",
                     "it again with `", fetch, "`, or convert its files");
  if (config.empty()) {
    config = layout.size() == 1 ? layout.begin()->first : preferred.empty() ? "default" : preferred;
    check<ConfigError>(
        layout.contains(config), dataset.id, ": has several configs: ", joined(names_of(layout)),
        "; name one, as in ", dataset.id, ":", layout.begin()->first, "/",
        layout.begin()->second.contains(dataset.split) ? dataset.split
                                                       : layout.begin()->second.begin()->first);
  }
  check<ConfigError>(layout.contains(config), dataset.id, ": has no config `", config,
                     "`; it has: ", joined(names_of(layout)));
  const auto& splits = layout.at(config);
  check<ConfigError>(splits.contains(dataset.split), dataset.id, ": config `", config,
                     "` has no split `", dataset.split, "`; it has: ", joined(names_of(splits)));
  for (const std::string& pattern : splits.at(dataset.split))
    check<ConfigError>(std::count(pattern.begin(), pattern.end(), '*') <= kMaxStars, dataset.id,
                       ": the pattern `", pattern.substr(0, 200),
                       "` in its README.md has more than ", kMaxStars, " stars");
  std::vector<std::string> found;
  for (const std::string& file : files)
    if (std::any_of(splits.at(dataset.split).begin(), splits.at(dataset.split).end(),
                    [&](const std::string& pattern) { return matches(pattern, file); }))
      found.push_back(snapshot + "/" + file);
  check<ConfigError>(!found.empty(), dataset.id, ": no file of config `", config, "`, split `",
                     dataset.split, "` is in the cache; fetch it again with `", fetch, "`");
  const std::string missing = missing_part(found);
  check<ConfigError>(missing.empty(), dataset.id, ": ", missing, " of config `", config,
                     "`, split `", dataset.split,
                     "` is missing in the cache; complete the download with `", fetch, "`");
  return found;
}

}  // namespace temper::data
