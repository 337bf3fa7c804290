#include "temper/env/environment.h"

namespace temper::env {

Registry<MakeEnvironment>& environments() {
  static Registry<MakeEnvironment> table(
      "environment",
      {
          {"calculator", make_calculator,
           "a tool `calculator` for + - * and brackets; 1 for the last number being the row's "
           "`answer`"},
          {"grid_world", make_grid_world,
           "a walk by north, south, east and west that finds what lies somewhere in a grid"},
      });
  return table;
}

}  // namespace temper::env
