#include "temper/base/config/row_names.h"

#include <algorithm>
#include <initializer_list>

namespace temper {
namespace {

bool are_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

bool ends_with_one_of(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

bool is_tf_record_name(std::string_view name) {
  if (name.ends_with(".gz")) name.remove_suffix(3);
  constexpr std::string_view kEnding = ".tfrecord";
  const size_t at = name.rfind(kEnding);
  if (at == name.npos) return false;
  std::string_view rest = name.substr(at + kEnding.size());
  if (rest.starts_with('s')) rest.remove_prefix(1);
  const size_t of = rest.find("-of-");
  return rest.empty() || (rest.starts_with('-') && of != rest.npos &&
                          are_digits(rest.substr(1, of - 1)) && are_digits(rest.substr(of + 4)));
}

bool is_row_name(std::string_view name) {
  if (is_tf_record_name(name) || ends_with_one_of(name, {".csv", ".tsv"})) return true;
  for (const std::string_view packed : {".gz", ".zst"})
    if (name.ends_with(packed)) {
      name.remove_suffix(packed.size());
      break;
    }
  return ends_with_one_of(name, {".jsonl", ".ndjson", ".parquet"});
}

}  // namespace temper
