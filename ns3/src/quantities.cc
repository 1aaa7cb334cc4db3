#include "quantities.h"

#include <charconv>
#include <map>

namespace peerloom
{

namespace
{

// Splits "10ms" into 10 and "ms"; no unit is the unit "".
double
Scaled(const std::string& text, const std::map<std::string, double>& units, const std::string& allowed)
{
    double number = 0;
    const char* end = text.data() + text.size();
    auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
    auto unit = units.find(std::string(rest, end));
    if (error != std::errc() || unit == units.end())
    {
        throw BadQuantity(allowed);
    }
    return number * unit->second;
}

} // namespace

uint64_t
ReadRate(const std::string& text)
{
    static const std::map<std::string, double> units{{"bps", 1},
                                                     {"kbps", 1e3},
                                                     {"Kbps", 1e3},
                                                     {"Mbps", 1e6},
                                                     {"Gbps", 1e9}};
    return CheckRate(Scaled(text, units, "a rate is a number with bps, kbps, Mbps or Gbps, as in 50Mbps"));
}

double
ReadDelay(const std::string& text)
{
    static const std::map<std::string, double> units{{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    return CheckDelay(Scaled(text, units, "a delay is a number with ns, us, ms or s, as in 10ms"));
}

double
ReadRatio(const std::string& text)
{
    return CheckRatio(Scaled(text, {{"", 1}}, "a loss is a ratio from 0 to 1, as in 0.05"));
}

uint64_t
ReadCount(const std::string& text, uint64_t least, uint64_t most)
{
    uint64_t number = 0;
    const char* end = text.data() + text.size();
    auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || rest != end || number < least || number > most)
    {
        throw BadQuantity("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return number;
}

uint64_t
CheckRate(double bitsPerSecond)
{
    // Written so that NaN fails too.
    if (!(bitsPerSecond >= kMinimumRate && bitsPerSecond <= kMaximumRate))
    {
        throw BadQuantity("a rate is from 1 kbps to 100 Gbps");
    }
    return static_cast<uint64_t>(bitsPerSecond);
}

double
CheckDelay(double seconds)
{
    if (!(seconds >= 0 && seconds <= kMaximumDelay))
    {
        throw BadQuantity("a delay is from 0 to 10 s");
    }
    return seconds;
}

double
CheckRatio(double ratio)
{
    if (!(ratio >= 0 && ratio <= 1))
    {
        throw BadQuantity("a loss is a ratio from 0 to 1");
    }
    return ratio;
}

} // namespace peerloom
