#pragma once

// The flags of the program.

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace peerloom
{

// Names the flag, its value and what is allowed.
struct BadOption : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

struct LinkOptions
{
    uint64_t bitsPerSecond = 1'000'000'000;
    double delaySeconds = 1e-6;
    double loss = 0;
};

struct TapOptions
{
    std::string name;
    std::string mac; // six pairs of hexadecimal digits in lower case
};

struct Options
{
    bool help = false;
    uint32_t nodes = 20;
    std::string medium = "csma";
    LinkOptions link; // the channel's, or that of every access link without its own
    uint32_t mtu = 9000;
    std::map<uint32_t, TapOptions> taps;
    std::map<uint32_t, LinkOptions> links;
    uint64_t backgroundBitsPerSecond = 0;
    std::string netanim;
    std::string pcap;
    std::string control;
    uint32_t seed = 1;
};

extern const char* const kUsage;

// Throws BadOption.
Options ReadOptions(const std::vector<std::string>& arguments);

} // namespace peerloom
