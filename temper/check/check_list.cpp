#include "temper/check/check_list.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"

namespace temper::checks {

const char* name_of(Finding::Status status) {
  return status == Finding::Status::kPass   ? "pass"
         : status == Finding::Status::kWarn ? "warn"
                                            : "fail";
}

bool CheckList::run(const std::string& name, const std::function<Finding()>& work) {
  Finding finding;
  try {
    finding = work();
  } catch (const std::filesystem::filesystem_error& e) {
    finding = Finding::fail(str(e.path1().string(), ": ", e.code().message()));
  } catch (const std::exception& e) {
    // LibTorch's messages carry a stack trace behind the first line.
    const std::string what = e.what();
    finding = Finding::fail(what.substr(0, what.find("\nException raised from")));
  }
  const bool good = finding.status != Finding::Status::kFail;
  add(name, std::move(finding));
  return good;
}

void CheckList::add(const std::string& name, Finding finding) {
  std::string unique = name;
  const auto taken = [&] {
    return std::any_of(checks_.begin(), checks_.end(),
                       [&](const Check& check) { return check.name == unique; });
  };
  for (int number = 2; taken(); ++number) unique = str(name, "-", number);
  checks_.push_back({std::move(unique), std::move(finding)});
}

void CheckList::skip(const std::string& name, const std::string& because) {
  add(name, Finding::warn("not checked: " + because));
}

bool CheckList::failed() const {
  return std::any_of(checks_.begin(), checks_.end(), [](const Check& check) {
    return check.finding.status == Finding::Status::kFail;
  });
}

}  // namespace temper::checks
