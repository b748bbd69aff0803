// A template, to be made your own: it takes the parameter from ~/parameter, and publishes x on ~/solution and how the
// solve ended on ~/status. `${prefix}.h` says where named parameters and variables begin. Written by longstep ${version}.
#include <memory>
#include <string>

#include "core.hpp"
#include "rclcpp/rclcpp.hpp"
#include "std_msgs/msg/float64_multi_array.hpp"
#include "std_msgs/msg/int32.hpp"

namespace ${prefix}_ros
{

class Node : public rclcpp::Node
{
public:
  Node()
  : rclcpp::Node("${prefix}")
  {
    core_.settings.eps_abs = static_cast<${prefix}_real>(declare_parameter("eps_abs", double(core_.settings.eps_abs)));
    core_.settings.eps_rel = static_cast<${prefix}_real>(declare_parameter("eps_rel", double(core_.settings.eps_rel)));
    core_.settings.max_iter = static_cast<int32_t>(declare_parameter("max_iter", int(core_.settings.max_iter)));
    core_.settings.steps = static_cast<int32_t>(declare_parameter("steps", int(core_.settings.steps)));
    warm_ = declare_parameter("warm_start", true);
    solution_ = create_publisher<std_msgs::msg::Float64MultiArray>("~/solution", 1);
    status_ = create_publisher<std_msgs::msg::Int32>("~/status", 1);
    // The newest parameter is the only one that counts.
    parameter_ = create_subscription<std_msgs::msg::Float64MultiArray>(
      "~/parameter", rclcpp::QoS(1), [this](const std_msgs::msg::Float64MultiArray & message) {answer(message);});
  }

private:
  void answer(const std_msgs::msg::Float64MultiArray & message)
  {
    const Outcome outcome = core_.solve(message.data, warm_);
    std_msgs::msg::Int32 status;
    status.data = static_cast<int32_t>(outcome.status);
    status_->publish(status);
    if (outcome.status != ${PREFIX}_SOLVED) {
      RCLCPP_WARN_THROTTLE(
        get_logger(), *get_clock(), 1000, "not solved: status %d after %d steps, %zu of %d entries were given",
        status.data, outcome.iterations, message.data.size(), ${PREFIX}_PARAMETERS);
      return;  // What to do instead is yours to decide.
    }
    std_msgs::msg::Float64MultiArray solution;
    solution.data = outcome.x;
    solution_->publish(solution);
  }

  Core core_;
  bool warm_;
  rclcpp::Publisher<std_msgs::msg::Float64MultiArray>::SharedPtr solution_;
  rclcpp::Publisher<std_msgs::msg::Int32>::SharedPtr status_;
  rclcpp::Subscription<std_msgs::msg::Float64MultiArray>::SharedPtr parameter_;
};

}  // namespace ${prefix}_ros

int main(int argc, char ** argv)
{
  rclcpp::init(argc, argv);
  rclcpp::spin(std::make_shared<${prefix}_ros::Node>());
  rclcpp::shutdown();
  return 0;
}
