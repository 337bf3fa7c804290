#include "temper/text/jinja/filters/filters.h"

#include <map>

#include "temper/text/jinja/filters/filter_functions.h"

namespace temper::jinja {

FilterFunction find_filter(const std::string& name) {
  static const std::map<std::string, FilterFunction, std::less<>> table = {
      {"abs", filters::absolute},
      {"attr", filters::attr},
      {"batch", filters::batch},
      {"capitalize", filters::capitalize},
      {"center", filters::center},
      {"count", filters::length},
      {"d", filters::use_default},
      {"default", filters::use_default},
      {"dictsort", filters::dict_sort},
      {"e", filters::escape},
      {"escape", filters::escape},
      {"first", filters::first},
      {"float", filters::to_float},
      {"forceescape", filters::force_escape},
      {"format", filters::format},
      {"groupby", filters::group_by},
      {"indent", filters::indent},
      {"int", filters::to_int},
      {"items", filters::items},
      {"join", filters::join},
      {"last", filters::last},
      {"length", filters::length},
      {"list", filters::list},
      {"lower", filters::lower},
      {"map", filters::map},
      {"max", filters::max},
      {"min", filters::min},
      {"reject", filters::reject},
      {"rejectattr", filters::reject_attr},
      {"replace", filters::replace},
      {"reverse", filters::reverse},
      {"round", filters::round},
      {"safe", filters::safe},
      {"select", filters::select},
      {"selectattr", filters::select_attr},
      {"slice", filters::slices},
      {"sort", filters::sort},
      {"string", filters::string},
      {"sum", filters::sum},
      {"title", filters::title},
      {"tojson", filters::to_json},
      {"trim", filters::trim},
      {"truncate", filters::truncate},
      {"unique", filters::unique},
      {"upper", filters::upper},
      {"urlencode", filters::url_encode},
      {"wordcount", filters::word_count},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace temper::jinja
