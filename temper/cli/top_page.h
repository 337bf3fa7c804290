// The page of `temper top --serve`: a run's curves and rollouts, while it goes on.
#pragma once

#include <cstdint>
#include <string>

#include "temper/http/access.h"
#include "temper/http/server.h"

namespace temper::cli {

// Answers
//   /                      the page, which asks for the two below and reads nothing else
//   /metrics?from=BYTE     whole lines of metrics.jsonl from there: {lines, next, size, running,
//                          planned}
//   /rollouts              the steps that have a rollouts file: {steps}
//   /rollouts?step=N       the first completions of one: {rows}
// Files are read afresh for each request, regular ones alone and a bounded part of each. What they
// hold is sent as JSON strings, and shown as text. Requests that a page of another site could make
// are refused, as are all but GET and HEAD.
class TopPage : public http::Handler {
 public:
  // planned_steps: 0: not known.
  TopPage(std::string run, int64_t planned_steps);
  http::Admission admit(const http::RequestHead& head) override;
  http::Answer refusal(int status, const std::string& message) override;
  void done(const http::RequestHead&, int, int64_t, double) override {}

 private:
  http::Answer answer_to(const http::RequestHead& head) const;
  std::string metrics_from(uint64_t begin) const;
  std::string rollout_steps() const;
  std::string rollouts_of(uint64_t step) const;

  const std::string run_;
  const int64_t planned_steps_;
  const http::AccessRules rules_;
};

}  // namespace temper::cli
