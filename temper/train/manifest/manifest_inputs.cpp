#include "temper/train/manifest/manifest_inputs.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/config/yaml_json.h"
#include "temper/base/error.h"
#include "temper/base/sha256.h"
#include "temper/base/version.h"
#include "temper/base/work_queue.h"
#include "temper/dist/environment.h"
#include "temper/train/run/input_files.h"

namespace temper::train {
namespace {

// Kinds of files, in the order of the line.
constexpr std::array kKinds{"rows", "base", "adapter", "tokenizer", "template", "others"};
// Files of a model's directory that are its tokenizer's.
constexpr std::array kTokenizerFiles{"tokenizer",      "vocab",        "merges",
                                     "special_tokens", "added_tokens", "sentencepiece"};
constexpr size_t kFileThreads = 4;  // that hash files

const char* kind_of(const InputFile& file) {
  const bool of_tokenizer =
      std::any_of(kTokenizerFiles.begin(), kTokenizerFiles.end(),
                  [&](const char* begin) { return file.name.starts_with(begin); });
  if (file.kind == InputFiles::kRows) return "rows";
  if (file.kind == InputFiles::kTemplate || file.name.ends_with(".jinja")) return "template";
  if (file.kind == InputFiles::kTokenizer) return "tokenizer";
  if (file.kind == InputFiles::kAdapter) return "adapter";
  if (file.kind == InputFiles::kBase) return of_tokenizer ? "tokenizer" : "base";
  return "others";
}

// Takes out the keys that the digest of settings leaves out.
void erase_outside_digest(std::span<const Field> fields, Json& settings) {
  for (const Field& field : fields) {
    if (field.outside_digest)
      settings.erase(field.name);
    else if (field.is_section() && settings.contains(field.name))
      erase_outside_digest(field.children, settings[field.name]);
  }
}

// null: it cannot be read, which is reported by whoever needs it.
Json digest_of(const std::string& path, const std::atomic<bool>& cancelled) {
  try {
    return sha256_of_file(path, &cancelled);
  } catch (const Error&) {
    return nullptr;
  }
}

Json entry_of(const InputFile& file) {
  return {{"key", file.key}, {"name", file.name}, {"bytes", file.bytes}};
}

}  // namespace

std::string settings_digest(RunConfig& config) {
  Json settings = json_of(parse_yaml(dump_run_config(config), "this run"));
  erase_outside_digest(Fields::of(config), settings);
  return sha256_hex(dump_json(settings));
}

Json mesh_of(RunConfig& config, const dist::Mesh& mesh) {
  const dist::AxisSizes sizes = config.mesh.sizes(mesh.world->size(), config.where("mesh"));
  Json ranks = {{"ranks", dist::read_environment().size}};
  for (size_t axis = 0; axis < dist::AxisSizes::kCount; ++axis)
    if (sizes[axis] != 1) ranks[dist::axes()[axis].name] = sizes[axis];
  return ranks;
}

Json program_of() {
  Dl_info about{};
  Json digest;
  if (::dladdr(reinterpret_cast<void*>(&program_of), &about) != 0 && about.dli_fname)
    digest = digest_of(about.dli_fname, false);
  return {{"version", kVersion}, {"sha256", digest}};
}

Manifest::MakeInputs manifest_inputs(RunConfig& config, const dist::Mesh& mesh) {
  return [files = input_files(config, true), settings = settings_digest(config),
          ranks = mesh_of(config, mesh)](const std::atomic<bool>& cancelled) {
    WorkQueue queue({.threads = kFileThreads});
    std::vector<std::future<Json>> digests;
    for (const InputFile& file : files)
      digests.push_back(queue.run([&] { return digest_of(file.path, cancelled); }));
    std::map<std::string, Json> lists;
    for (size_t i = 0; i < files.size(); ++i) {
      Json entry = entry_of(files[i]);
      entry["sha256"] = digests[i].get();
      lists[kind_of(files[i])].push_back(std::move(entry));
    }
    Json line = Json::object();
    for (const char* kind : kKinds)
      if (lists.contains(kind)) line[kind] = std::move(lists[kind]);
    line["config"] = settings;
    line["mesh"] = ranks;
    line["program"] = program_of();
    return line;
  };
}

std::vector<std::string> changed_files(RunConfig& config, const Json& inputs) {
  const std::vector<InputFile> files = input_files(config, true);
  std::vector<std::string> changed;
  // A key without files there names some that an earlier version did not record.
  std::set<std::string> recorded;
  for (const char* kind : kKinds)
    for (const Json& entry : inputs.value(kind, Json::array()))
      if (const Json key = entry.value("key", Json()); key.is_string()) recorded.insert(key);
  for (const char* kind : kKinds) {
    const Json list = inputs.value(kind, Json::array());
    std::vector<bool> known(files.size());
    for (const Json& entry : list) {
      const auto has = [&](const InputFile& file) {
        return entry.value("key", Json()) == file.key && entry.value("name", Json()) == file.name;
      };
      const auto found = std::find_if(files.begin(), files.end(), has);
      const std::string label = str(dump_json(entry.value("key", Json())), " (",
                                    dump_json(entry.value("name", Json())), ")");
      if (found == files.end()) {
        changed.push_back(label + ": the file is not there");
        continue;
      }
      const std::string digest = sha256_of_file(found->path);
      if (entry.value("sha256", Json()) != digest)
        changed.push_back(str(found->label(), ": its SHA-256 is ", digest,
                              ", that of the run's was ",
                              dump_json(entry.value("sha256", Json()))));
    }
    for (const InputFile& file : files)
      if (kind_of(file) == std::string(kind) && recorded.contains(file.key) &&
          std::none_of(list.begin(), list.end(), [&](const Json& entry) {
            return entry.value("key", Json()) == file.key &&
                   entry.value("name", Json()) == file.name;
          }))
        changed.push_back(file.label() + ": the run had no such file");
  }
  return changed;
}

}  // namespace temper::train
