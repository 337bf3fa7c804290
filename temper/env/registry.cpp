#include "temper/env/environment.h"

namespace temper::env {

Registry<MakeEnvironment>& environments() {
  static Registry<MakeEnvironment> table("environment");
  return table;
}

}  // namespace temper::env
