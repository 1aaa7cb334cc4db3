#pragma once

// Reads the numbers that flags carry: rates, durations, ratios, counts. Each throws BadQuantity, which says
// what is allowed.

#include <cstdint>
#include <stdexcept>
#include <string>

namespace peerloom
{

struct BadQuantity : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

constexpr uint64_t kMinimumRate = 1000;            // bits per second
constexpr uint64_t kMaximumRate = 100'000'000'000; // bits per second
constexpr double kMaximumDelay = 10;               // seconds

// "50Mbps" -> 50000000
uint64_t ReadRate(const std::string& text);
// "10ms" -> 0.01
double ReadDelay(const std::string& text);
// "0.05" -> 0.05
double ReadRatio(const std::string& text);
// A whole number from least to most.
uint64_t ReadCount(const std::string& text, uint64_t least, uint64_t most);

// The same limits for values that are numbers already.
uint64_t CheckRate(double bitsPerSecond);
double CheckDelay(double seconds);
double CheckRatio(double ratio);

} // namespace peerloom
