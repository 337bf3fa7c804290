// A teacher behind an address: `temper serve` gives the likeliest tokens at the targets of each
// pass (top_tokens.h), the numbers of the same teacher in this process, to the bit.
#pragma once

#include <memory>
#include <string>

#include "temper/distill/teacher.h"

namespace temper::distill {

// Asks the server once and keeps what it needs: `teacher` has a url. Throws ConfigError where the
// server does not answer or lacks the route, where its vocabulary is not the student's, of another
// size or with other tokens, or has no more than distill.top_k tokens.
//
// What is asked later is tried as rollout servers are (ServerPool). top_tokens() throws NoServer, a
// RunError, where that is in vain, and ConfigError for rows with images.
std::unique_ptr<RemoteTeacher> open_teacher_server(const DistillConfig& config,
                                                   const TeacherSection& teacher,
                                                   const train::Policy& policy);

// The same questions, for `temper check`: what the server is.
std::string describe_teacher_server(const DistillConfig& config, const TeacherSection& teacher,
                                    const train::Policy& policy);

}  // namespace temper::distill
