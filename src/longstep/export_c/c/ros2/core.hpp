// The node without ROS: a workspace, its settings, and solves from the last solution. Written by longstep ${version}.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "${prefix}.h"

namespace ${prefix}_ros
{

// What a solve gave: x where there is a point, else nothing.
struct Outcome
{
  ${prefix}_status status;
  std::int32_t iterations;
  std::vector<double> x;
};

class Core
{
public:
  Core()
  : work_(std::make_unique<${prefix}_workspace>()), result_(std::make_unique<${prefix}_result>())
  {
    ${prefix}_defaults(&settings);
  }

  // Solve for a parameter; warm starts are from the last solution, where there is one.
  Outcome solve(const std::vector<double> & parameter, bool warm)
  {
    if (parameter.size() != static_cast<std::size_t>(${PREFIX}_PARAMETERS)) {
      return {${PREFIX}_BAD_INPUT, 0, {}};
    }
    const std::vector<${prefix}_real> given(parameter.begin(), parameter.end());
    const ${prefix}_start last{x_.data(), y_.data(), s_.data()};
    const bool started = warm && !x_.empty();
    const ${prefix}_status status =
      ${prefix}_solve_from(work_.get(), &settings, given.data(), started ? &last : nullptr, result_.get());
    if (status == ${PREFIX}_BAD_INPUT || status == ${PREFIX}_BAD_TOLERANCE) {
      return {status, 0, {}};
    }
    if (status == ${PREFIX}_SOLVED) {
      x_.assign(std::begin(result_->x), std::end(result_->x));
      y_.assign(std::begin(result_->y), std::end(result_->y));
      s_.assign(std::begin(result_->s), std::end(result_->s));
    }
    return {status, result_->iterations, {std::begin(result_->x), std::end(result_->x)}};
  }

  ${prefix}_settings settings;

private:
  std::unique_ptr<${prefix}_workspace> work_;
  std::unique_ptr<${prefix}_result> result_;
  std::vector<${prefix}_real> x_;
  std::vector<${prefix}_real> y_;
  std::vector<${prefix}_real> s_;
};

}  // namespace ${prefix}_ros
