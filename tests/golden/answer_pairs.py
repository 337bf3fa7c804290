"""The answers that make_answer_goldens.py asks graders about, and where Temper's verdict is its own."""


def pairs(text):
    """Lines of "truth <> answer <> answer ..."; no answer has `<>` in it."""
    for line in text.strip().splitlines():
        truth, *answers = (part.strip() for part in line.split("<>"))
        for answer in answers:
            yield truth, answer


MATH = list(pairs(r"""
4 <> 4 <> 4.0 <> 4. <> +4 <> 04 <> 5 <> -4 <> 4! <> 4i <> 40 <> 2+2 <> 2^2 <> \sqrt{16} <> 8/2 <> \frac{8}{2} <> x=4 <> x = 4 <> 4=x <> x=3 or x=4 <> x=3, x=4 <> x \in \{3,4\} <> 3 or 4 <> 3, 4 <> 3;4 <> 3 \text{ or } 4 <> 3 \text{ and } 4 <> \{4\} <> (4) <> [4] <> |4| <> |-4| <> 4x <> 4.00001 <> four <> 4\text{ apples} <> 4 \text{ cm} <> 4cm <> 4 cm <> 4 apples <> \$4 <> 4\$ <> 4\% <> 4^\circ <> 4°
4 <> 4, 5 <> (4,5) <> 1=4 <> 1=2=4 <> x=1=4 <> 2x=4 <> x \neq 4 <> x<4 <> x>4 <> x \leq 4 <> x \approx 4 <> \approx 4 <> \pm 4 <> 4 \pm 1 <> \boxed{4} <> {4} <> {{4}} <> \mathbf{4} <> \text{4} <> "4" <> $4$ <> \(4\) <> 4 squared <> 4 million <> 4 dozen <> 4 ... 5 <> 4\ldots <> 4 to 5 <> 4-5 <> 4 5 <> 4/1 <> 4:1 <> 4 \text{ (or 5)} <> 4 (or 5) <> answer: 4 <> n/a <> 4e0 <> 0x4 <> \lceil 3.5 \rceil <> \lfloor 4.5 \rfloor <> \log_{2} 16 <> \binom{4}{1} <> \sum 4
24 <> 4! <> 24 <> 4!! <> 4 \cdot 3 \cdot 2 <> 4 \times 6 <> 4*6 <> 4 6 <> 2 4 <> 24!
7 <> 1=2=7 <> x=y=7 <> x=5, y=7 <> 5, y=7 <> x=5 \text{ or } x=7 <> x=5\\x=7 <> f(x)=7 <> f(3)=7 <> x_1=7 <> a+b=7 <> 3+4=7 <> 7=3+4 <> 7=7 <> 6=7 <> 6\ne 7 <> x=6=7
3x <> 3x <> 3 x <> 3y <> {3} <> 3! <> 3 <> 3*x <> 3 \cdot x <> x3 <> x \cdot 3 <> 3X <> y=3x <> 2x+x <> x+x+x <> 3x+0 <> 3x^1 <> 3x^2 <> 3x,3y
5 <> 5i <> 5! <> 5j <> i5 <> 5\pi <> 5e <> 5n <> 5 n <> 5 m <> 5m <> 5 \text{ m} <> 5\mathrm{m} <> 5 \mathrm{ km} <> 5 \,\text{km} <> 5 km/h <> 5 \text{ km/h} <> 5\text{ cm}^2 <> 5 \text{ square units} <> 5 square units <> 5\text{th} <> 5^{th} <> 5^{\text{th}} <> 5x+0x <> 5 a <> 5 and 6 <> 5 and <> 5 if x>0 <> 5 \text{ if } x>0 <> 5, else 6
1234 <> 1,234 <> 1{,}234 <> 1\,234 <> 1\!,\!234 <> 1,\!234 <> (1,234) <> [1,234] <> \{1,234\} <> 1, 234 <> 1 234 <> 12,34 <> 1234.0 <> 1234.5 <> 01234 <> 1.234 <> 1.234 \times 10^3 <> 1.234e3 <> 1,2,3,4
(1,234) <> 1234 <> (1,234) <> (1, 234) <> 1,234 <> [1,234] <> (234,1) <> \left(1,234\right) <> (1;234)
1,234,567 <> 1234567 <> 1,234567 <> 1234,567 <> 1{,}234{,}567 <> 1,\!234,\!567 <> 1,234,567.0 <> 1,234,568
34 <> 3 \text{ and } 4 <> 3 \text{ or } 4 <> 3\text{4} <> 3 and 4 <> 3,4 <> 34 <> 3 4 <> 3\quad 4 <> 3\cdot 4 <> 3~4
\frac{1}{2} <> \frac{1}{2} <> \frac12 <> \dfrac{1}{2} <> \tfrac12 <> \cfrac{1}{2} <> 1/2 <> 0.5 <> .5 <> 0.50 <> 50\% <> 50% <> 50 percent <> \frac{2}{4} <> \frac{-1}{-2} <> -\frac{1}{-2} <> 2^{-1} <> \frac{\frac{1}{1}}{2} <> 1 / 2 <> 1:2 <> \frac{1}{3} <> \frac{2}{1} <> -\frac{1}{2} <> \frac1 2 <> \frac 12 <> \frac{1}{2}x <> 0,5 <> 1\div 2 <> \sqrt{\frac{1}{4}} <> \sin 30^\circ <> \frac{x}{2x} <> one half <> {1 \over 2}
-\frac{2}{3} <> -2/3 <> \frac{-2}{3} <> \frac{2}{-3} <> -\frac23 <> -0.667 <> -0.6666666666666667 <> -0.\overline{6} <> 2/3 <> - \frac{2}{3} <> -(2/3) <> −\frac{2}{3} <> -\frac{4}{6}
3\frac{1}{2} <> 3\frac{1}{2} <> 3\frac12 <> 3 \frac{1}{2} <> 3.5 <> \frac{7}{2} <> 7/2 <> 3 1/2 <> 1.5 <> \frac{3}{2} <> 3\cdot\frac{1}{2} <> 3+\frac{1}{2} <> 31/2
-1\frac{1}{2} <> -1.5 <> -\frac{3}{2} <> -0.5 <> -1\frac12
75\% <> 75\% <> 75 <> 0.75 <> 75% <> 3/4 <> 75 \text{ percent} <> 75 percent <> 7500\% <> 0.75\%
75 <> 75\% <> 75% <> 0.75 <> 75 percent
\$18.90 <> 18.90 <> 18.9 <> \$18.9 <> \$18.90 <> 18.9\text{ dollars} <> 18.9 dollars <> 1890 <> 1890 cents <> 18.90\% <> USD 18.90 <> £18.90 <> 18.90€ <> 18{,}90 <> \$18 <> \$18.90, \$19
90^\circ <> 90 <> 90^\circ <> 90^{\circ} <> 90° <> 90 degrees <> 90\text{ degrees} <> 90^\circ C <> \frac{\pi}{2} <> 89^\circ <> 90^{\circ}\text{F}
10000 <> 10,000 <> 10^4 <> 10000 \text{ dollars} <> 10^{4} <> 1 \times 10^4 <> 1\times10^{4} <> 1.0 \cdot 10^4 <> 1e4 <> 1E4 <> 10^5 <> 10\text{ thousand} <> 10 thousand <> 10k <> 10 000
0.000012 <> 1.2\times10^{-5} <> 1.2 \cdot 10^{-5} <> 1.2e-5 <> 12\times 10^{-6} <> 0.000012 <> 0.000013 <> 0 <> 0.0000120001 <> 0.0000121
3.0\times 10^8 <> 300000000 <> 3e8 <> 3\times 10^8 <> 3 \times 10^{8} <> 3 \times 10^9 <> 3.0\times10^8 \text{ m/s}
\pi <> \pi <> 3.14 <> 3.14159265358979 <> π <> 3.1416 <> 22/7 <> \pi r <> 1\pi <> 180^\circ <> p <> pi
12\pi <> 12\pi <> 12 π <> 12 \cdot \pi <> 37.69911184307752 <> 37.7 <> \pi 12 <> 12pi <> 12\pi\text{ cm} <> 12\pi r <> 6\pi+6\pi <> 4\pi\cdot 3
2\sqrt{3} <> 2\sqrt{3} <> 2\sqrt3 <> 2 \cdot \sqrt3 <> \sqrt{12} <> 2*\sqrt{3} <> 2\sqrt{2} <> 2\sqrt[3]{3} <> 3.46 <> 3.4641016151377544 <> 2 \sqrt{3}\text{ units} <> 2sqrt(3) <> \sqrt{3}\cdot 2 <> 2 * 3^{1/2} <> 2\cdot 3^{0.5} <> 2√3
\sqrt[3]{2} <> 2^{1/3} <> 2^{\frac{1}{3}} <> \sqrt[3]{2} <> \sqrt{2} <> \sqrt[3]2 <> \sqrt[4]{2} <> 1.2599210498948732
\frac{\sqrt{2}}{2} <> \frac{1}{\sqrt{2}} <> \sqrt{\frac12} <> \frac{\sqrt2}{2} <> \sqrt2/2 <> 0.7071067811865476 <> \frac{\sqrt{3}}{2} <> \cos 45^\circ
1+\sqrt{5} <> \sqrt{5}+1 <> \sqrt5 + 1 <> 1-\sqrt{5} <> 3.23606797749979 <> 1 + \sqrt{5} <> (1+\sqrt{5})
\frac{1+\sqrt{5}}{2} <> (1+\sqrt{5})/2 <> 1+\sqrt{5}/2 <> \frac{\sqrt5+1}{2} <> \frac{1}{2}+\frac{\sqrt{5}}{2}
1,2 <> 1,2 <> 2,1 <> 1, 2 <> 1 \text{ and } 2 <> 1 and 2 <> 1 or 2 <> \{1,2\} <> (1,2) <> 1,2,3 <> 1 <> 12 <> x=1,2 <> x=1, x=2 <> 1;2 <> 1.2 <> 1,1,2 <> 1,2,
\{1,2,3\} <> \{1,2,3\} <> \{3,2,1\} <> 1,2,3 <> (1,2,3) <> [1,2,3] <> \{1,2\} <> \{1,2,3,4\} <> \left\{1,2,3\right\} <> \{1, 2, 3\} <> \{1,1,2,3\} <> {1,2,3} <> \{\frac{2}{2},2,3\} <> 123 <> 1, 2, 3 <> \{1;2;3\}
\{4\} <> 4 <> \{4\} <> \{4,4\} <> (4) <> \{5\}
(1,2) <> (1,2) <> (1, 2) <> (2,1) <> [1,2] <> (1,2] <> [1,2) <> \{1,2\} <> 1,2 <> \left(1,2\right) <> (1.0,2) <> (\frac{2}{2},2) <> (x,y)=(1,2) <> (1,2,3) <> (1;2) <> \langle 1,2 \rangle <> (12) <> (1,3) <> ( 1 , 2 ) <> 1.2 <> \begin{pmatrix}1\\2\end{pmatrix}
(0.5,\frac{3}{4}) <> (\frac{1}{2},0.75) <> (1/2, 3/4) <> (1/2, 4/3)
[0,1) <> [0,1) <> [0, 1) <> (0,1) <> [0,1] <> (0,1] <> \left[0,1\right) <> 0 \leq x < 1 <> 0\le x<1 <> [0,1[ <> x \in [0,1) <> [0,2)
(-\infty, 3] <> (-\infty,3] <> (-\infty, 3) <> (-\infty, 3.0] <> x \leq 3 <> x\le 3 <> (-inf,3] <> (-∞,3] <> [-\infty,3] <> (\infty,3] <> \left(-\infty,3\right]
(-\infty,1)\cup(2,\infty) <> (-\infty,1) \cup (2,\infty) <> (2,\infty)\cup(-\infty,1) <> (-\infty,1)\cup(2,+\infty) <> (-\infty,1]\cup(2,\infty) <> (-\infty,1),(2,\infty) <> (-\infty,1) <> (-\infty, 1.0) \cup (2, \infty)
x^2+1 <> x^2 + 1 <> 1+x^2 <> x^{2}+1 <> x^2+1=0 <> y = x^2+1 <> f(x)=x^2+1 <> x^2-1 <> x^2 + 1.0 <> (x^2+1) <> X^2+1 <> x^2+1+y <> x^3+1 <> t^2+1 <> x^2 <> x2+1
x^{10} <> x^10 <> x^{10} <> x^{1}0 <> x10
a+b <> b+a <> a+b <> a + b <> a-b <> ab <> a+b+c
(x+1)(x-1) <> x^2-1 <> (x-1)(x+1) <> (x+1)(x-1) <> (x+1)(x-2) <> (x + 1)(x - 1) <> (x+1)\cdot(x-1)
y=2x+3 <> y = 2x + 3 <> 2x+3 <> y=2x+4 <> y-2x=3 <> y=3+2x <> x=2y+3 <> 2x+3=y
x=5 <> 5 <> x=5 <> x = 5 <> y=5 <> x=6 <> 5=x <> x=5,6 <> x=5 \text{ or } x=6
x>3 <> x>3 <> x > 3 <> 3<x <> x\gt 3 <> x<3 <> x\geq 3 <> (3,\infty) <> 3 <> y>3
i <> i <> -i <> 1 <> \sqrt{-1} <> 1i <> 2i
3+4i <> 3+4i <> 4i+3 <> 3 + 4i <> 3-4i <> 7 <> 3+4 <> 3+4j <> 3+i4 <> 7i <> (3,4)
\begin{pmatrix}1&2\\3&4\end{pmatrix} <> \begin{pmatrix}1&2\\3&4\end{pmatrix} <> \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} <> \begin{bmatrix}1&2\\3&4\end{bmatrix} <> \begin{pmatrix}1&2\\3&5\end{pmatrix} <> \begin{pmatrix}1&3\\2&4\end{pmatrix} <> 1234 <> \begin{pmatrix}1.0&2\\3&\frac{8}{2}\end{pmatrix} <> \begin{pmatrix}1&2&3&4\end{pmatrix} <> 1,2,3,4
\begin{pmatrix}-7\\16\\5\end{pmatrix} <> \begin{pmatrix} -7 \\ 16 \\ 5 \end{pmatrix} <> (-7,16,5) <> \begin{pmatrix}-7&16&5\end{pmatrix} <> \begin{pmatrix}7\\16\\5\end{pmatrix}
\text{yes} <> yes <> Yes <> \text{Yes} <> no <> \text{no} <> \text{yes and no} <> true
\text{(C)} <> C <> (C) <> \text{C} <> \textbf{(C)} <> D <> c <> (D) <> \mathrm{C} <> C) <> CD <> C, D <> (C, D)
C <> (C) <> \text{C} <> \text{(C)} <> C. <> B <> AC
\text{Evelyn} <> Evelyn <> \text{ Evelyn} <> evelyn <> \text{Evelyn and Bob} <> Eve <> \text{Carla}
\text{east} <> east <> \text{west} <> East <> \textbf{east}
\text{June 20} <> June 20 <> 20 <> 20 June <> \text{June 2} <> \text{June20}
2:30 <> 2:30 <> 2:30 \text{ p.m.} <> 230 <> 2.5 <> 2:31
11:00 \text{ a.m.} <> 11:00 <> 11:00 a.m. <> 11:00 \text{ p.m.} <> 11
1010_2 <> 1010_2 <> 1010 <> 1010_{2} <> 1010_3 <> 10 <> 1010_{\text{two}}
4210_{5} <> 4210_5 <> 4210 <> 555 <> 4210_6 <> 42105
0 <> 0 <> 0.0 <> -0 <> 0x <> \emptyset <> {} <> \varnothing <> none <> 0\% <> 1-1 <> 0.0000000001 <> \text{zero}
1 <> 0.9999999999 <> 1.0 <> 1^{100} <> \sin^2 x + \cos^2 x <> 0! <> 1! <> 1/1 <> e^0 <> 100\% <> 1.000 <> 0.999 <> 01 <> 1x <> x^0
\infty <> \infty <> +\infty <> -\infty <> ∞ <> infinity <> 1/0 <> 10^{1000}
-\infty <> -\infty <> \infty
-3 <> -3 <> - 3 <> −3 <> 3 <> --3 <> -(3) <> -3.0 <> (-3) <> -3i <> minus 3 <> +-3 <> 0-3
\pm 3 <> \pm 3 <> \pm3 <> 3,-3 <> -3,3 <> 3 <> -3 <> \{-3,3\} <> 3 \text{ or } -3 <> ±3 <> \mp 3
2^{100} <> 2^{100} <> 1267650600228229401496703205376 <> 1267650600228229401496703205377 <> 1.2676506\times 10^{30} <> 2^{101} <> 4^{50}
12345678901234567890 <> 12345678901234567890 <> 12345678901234567891 <> 12345678901234567890.0 <> 12,345,678,901,234,567,890
0.1+0.2 <> 0.3 <> 0.30000000000000004 <> 3/10
0.333 <> 1/3 <> 0.333 <> 0.3333 <> 0.33 <> .333
0.\overline{3} <> \frac{1}{3} <> 0.\overline{3} <> 0.3 <> 0.333 <> 0.\bar{3} <> 0.\overline{6}
\log_2 5 <> \log_2 5 <> \log_{2} 5 <> \log_2{5} <> \log_{2}(5) <> \log 5 <> \log_5 2 <> \frac{\ln 5}{\ln 2} <> 2.321928094887362
\ln 2 <> \ln 2 <> \ln(2) <> \ln{2} <> \log 2 <> 0.6931471805599453 <> \ln 3 <> ln 2
e^2 <> e^2 <> e^{2} <> 7.38905609893065 <> e <> e^3 <> 2e
\binom{5}{2} <> 10 <> \binom{5}{2} <> \binom{5}{3} <> \dbinom{5}{2} <> {5 \choose 2} <> \frac{5}{2}
5! <> 120 <> 5! <> 5 <> 5\cdot 4! <> 6!
\frac{5!}{2!} <> 60 <> \frac{5}{2} <> \frac{5!}{2!}
\sin 30^\circ <> \frac{1}{2} <> 0.5 <> \sin 30^\circ <> \sin(30^\circ) <> \sin{30^\circ} <> \sin 30 <> \cos 60^\circ
3:4 <> 3:4 <> 3/4 <> 0.75 <> 3 : 4 <> 4:3 <> 6:8 <> 3 to 4 <> 34
x+y+z=1 <> x+y+z=1 <> x + y + z = 1 <> x+y+z-1=0 <> z+y+x=1 <> x+y+z=2 <> 1
5 \text{ cm} <> 5 <> 5 \text{ cm} <> 5 cm <> 5 \text{ m} <> 5\text{ inches} <> 5cm <> 6 \text{ cm} <> 5\text{ cm}^2 <> 50 \text{ mm}
36 \text{ cm}^2 <> 36 <> 36 \text{ cm}^2 <> 36\text{ square centimeters} <> 36 \text{ cm} <> 36\,\mathrm{cm}^2 <> 36 cm^2 <> 362
5\text{ hours} <> 5 <> 5 hours <> 5 \text{ hours} <> 5\text{ hours and } 3\text{ minutes} <> 5 h <> 5\text{ minutes}
3 <> 1, 2, 3 <> 1 or 2 or 3 <> 1,2 or 3 <> \{1,2,3\} <> 2 \text{ or } \boxed{3} <> 3 \vee 2 <> 3 | 2 <> 3/2 <> 3 \mid 4 <> 3 \to 4 <> 3 \ldots 9 <> 3 \pm 0 <> 2, \text{ no } 3 <> \text{not } 2 \text{ but } 3 <> 2 \Rightarrow 3 <> 2 \text{ then } 3 <> 2; x=3 <> x=2; x=3 <> x \in [0,3] <> 0 < 3 <> [3,3] <> \min(3,4) <> \max(1,3) <> 3 \bmod 5 <> 3 \cup 4 <> 3\cup <> 3\\ <> \begin{cases}3\\4\end{cases} <> \begin{pmatrix}3\end{pmatrix} <> <3> <> \langle 3 \rangle <> 3\}\{ <> {3 <> 3} <> ((3) <> ))3(( <> \frac{3}{ <> \frac{3}{} <> \frac{}{3} <> \sqrt{ <> \sqrt{9} <> ^3 <> 3^ <> 3^{} <> 3_ <> _3 <> 3= <> =3 <> x= <> \text{3 <> \text{} 3 <> 3\text{} <> ,3 <> 3, <> 3,, <> ; <> \\ <> - <> + <> . <> ... <> 3.. <> 3..3 <> 3.0.0 <> \, <> \frac <> \boxed{} <> NaN <> inf <> -inf <> None <> null <> 3e <> e3 <> 3e+ <> 3!! <> 3!!! <> (-3)! <> 3.5! <> 10000! <> 3^{10000} <> \binom{3}{1} <> \binom{10000}{3}
-\frac{1}{3} <> \frac{-1}{3} <> \frac{1}{-3} <> -(\frac{1}{3}) <> -1/3 <> 1/-3 <> (-1)/3 <> -0.3333333333333333 <> \frac{1}{3} <> - 1/3
\frac{a}{b} <> a/b <> \frac{a}{b} <> ab^{-1} <> \frac{b}{a} <> a\div b <> \frac ab
\frac{x+2}{7} <> (x+2)/7 <> \frac{x}{7}+\frac{2}{7} <> x+2/7 <> \frac{1}{7}(x+2) <> \frac{x+2}{7}
x^3+3x-6 <> x^3 + 3x - 6 <> 3x+x^3-6 <> x(x^2+3)-6 <> x^3+3x+6 <> x^3 - 6 + 3 \cdot x
2(x-3)^2+5 <> 2(x-3)^2+5 <> 2x^2-12x+23 <> 2(x-3)^{2}+5 <> 2(3-x)^2+5 <> 2(x+3)^2+5
\sqrt{x^2} <> |x| <> x <> \sqrt{x^2}
\theta = \frac{\pi}{4} <> \frac{\pi}{4} <> \theta=\pi/4 <> 45^\circ <> \frac{\pi}{3}
\log_{10} 100 <> 2 <> \log 100 <> \log_{10}(100)
\tan^2\theta <> \tan^{2}\theta <> \tan^2(\theta) <> (\tan\theta)^2 <> \tan\theta^2 <> \sin^2\theta/\cos^2\theta
(2,3),(4,5) <> (2,3),(4,5) <> (4,5),(2,3) <> (2,3), (5,4) <> (2,3) <> (2, 3) \text{ and } (4, 5) <> \{(2,3),(4,5)\} <> (2,3,4,5)
(-\infty,\infty) <> (-\infty,\infty) <> \mathbb{R} <> (-\infty,+\infty) <> (\infty,-\infty) <> [-\infty,\infty]
[2,5] <> [2,5] <> [2, 5] <> 2\le x\le5 <> [5,2] <> (2,5) <> [\frac{4}{2},5] <> 2,5 <> [2;5]
16\text{ ways} <> 16 <> 16 ways <> 16\text{ ways} <> 16\text{ way}
\$32,\!348 <> 32348 <> 32,348 <> \$32,348 <> 32.348 <> 32{,}348 <> \$ 32,348
1,\!000,\!000 <> 10000 <> 10^6 <> 1,000,000 <> 1{,}000{,}000 <> 1 \text{ million} <> 1,000000
6^\text{th} <> 6
(3,\frac{\pi}{2}) <> (3, \pi/2) <> (3,90^\circ) <> \left( 3, \frac{\pi}{2} \right) <> (\frac{\pi}{2},3)
p - q <> p-q <> q-p <> -q+p <> -(q-p)
\frac{\sqrt{3}}{3} <> \frac{1}{\sqrt{3}} <> \sqrt{3}/3 <> \sqrt{\frac{1}{3}} <> 3^{-1/2} <> \frac{\sqrt3}{3} <> 0.5773502691896258 <> \frac{3}{\sqrt{3}}
0.5 <> .5 <> 1/2 <> 0.50 <> 50\% <> \frac{1}{2} <> 0,5 <> 5\cdot 10^{-1} <> 0.05 <> 5
-16325 <> -16325 <> -16,325 <> 16325 <> -16325.0 <> -16 325
\sqrt{2}+\sqrt{3} <> \sqrt{3}+\sqrt{2} <> \sqrt{5} <> \sqrt{5+2\sqrt{6}} <> 3.1462643699419726
\begin{vmatrix}1&2\\3&4\end{vmatrix} <> \begin{vmatrix}1&2\\3&4\end{vmatrix} <> \begin{pmatrix}1&2\\3&4\end{pmatrix}
AB <> AB <> BA <> A \cdot B <> A+B <> \overline{AB}
\angle ABC <> \angle ABC <> ABC <> \angle ACB
7 \times 10^{-3} <> 0.007 <> 7\cdot10^{-3} <> 7e-3 <> 7\times 10^{3} <> 7\times10^-3
4^{1002} <> 2^{2004} <> 2^{2005} <> 16^{501} <> 2^{2004}+1 <> 4\cdot 4^{1001} <> \frac{2^{2005}}{2} <> 4^{1001} <> -2^{2004}
2^{2004}-1 <> 4^{1002}-1 <> 2^{2004}
\frac{4^{1002}-1}{3} <> \frac{2^{2004}-1}{3} <> \frac{2^{2004}}{3}
\frac{2^{100}-1}{3} <> \frac{4^{50}-1}{3} <> \frac{2^{100}}{3} <> \frac{2^{101}-2}{6}
10^{400} <> 100^{200} <> 10^{401} <> 10\cdot 10^{399}
2^{-2004} <> 4^{-1002} <> \frac{1}{2^{2004}} <> 2^{-2005} <> 0
0 <> 2^{-2004} <> 2^{2004}-4^{1002}
1000! <> 1000 \cdot 999! <> 999! <> 1001!
\binom{100}{50} <> \binom{100}{49} <> 100891344545564193334812497256 <> 100891344545564193334812497257 <> \frac{100!}{50!50!}
\binom{2004}{2} <> 2007006 <> 2007007
3^{1000}+2^{1000} <> 2^{1000}+3^{1000} <> 3^{1000}
(-2)^{2005} <> -2^{2005} <> 2^{2005} <> -2\cdot 4^{1002}
2^{1500} <> |-2^{1500}| <> |2^{1500}| <> |2^{1501}| <> -|2^{1500}|
x^{2004} <> (x^2)^{1002} <> x^{2004}+x <> x^{2005}
7^{7^{7}} <> 7^{823543} <> 7^{49}
2^{2^{10}} <> 2^{1024} <> 2^{20} <> 4^{512}
1-2^{-2000} <> 1-4^{-1000}
\frac{2^{2010}}{2^{2000}} <> 1024 <> 2^{10} <> 2^{11}
\sqrt{2^{2004}} <> 2^{1002} <> 2^{1003}
\log_2 2^{2004} <> 2004 <> 2005
\max(3,5) <> 5 <> 3 <> \max(5,3) <> \max\{3,5\} <> \operatorname{max}(3,5) <> max(3,5)
5 <> \max(3,5) <> \max\{5\} <> \max\{3,5,4\} <> \min(5,7) <> \max(5,7)
\max(a,b) <> \max(b,a) <> \max\{a,b\} <> \min(a,b) <> a
6 <> \gcd(12,18) <> \gcd(18,12) <> \gcd(12,19) <> \operatorname{gcd}(12,18) <> \text{gcd}(12,18) <> gcd(12,18) <> \gcd\{12,18\}
\gcd(12,18) <> 6 <> \gcd(6,12) <> \gcd(18,12) <> 12
\gcd(m,n) <> \gcd(n,m) <> \gcd(m, n) <> mn <> \gcd(m,k) <> 1
2^{\gcd(m,n)}-1 <> 2^{\gcd(n,m)}-1 <> 2^{\gcd(n, m)}-1
12 <> \operatorname{lcm}(4,6) <> \text{lcm}(4,6) <> \mathrm{lcm}(4,6) <> lcm(4,6) <> \operatorname{lcm}(4,3) <> \operatorname{lcm}(4,5)
\operatorname{lcm}(a,b) <> \operatorname{lcm}(b,a) <> \text{lcm}(a,b) <> ab
\{\} <> \emptyset <> \varnothing <> \{\} <> \{ \} <> \left\{\right\} <> \{0\} <> 0 <> {} <> \{\emptyset\} <> \phi
\emptyset <> \{\} <> \varnothing <> \{ \} <> \{\emptyset\} <> 0 <> ∅
\{\emptyset\} <> \emptyset <> \{\} <> \{\{\}\} <> \{\emptyset\}
""")) + [("4", "(" * 400 + "4" + ")" * 400), ("4", "{" * 400 + "4" + "}" * 400), ("4", "-" * 800 + "4"), ("4", "4" * 5000), ("4", ""),
         ("4", "\\frac{" * 150), ("4", "\\{" * 400), ("4", ",".join(["4"] * 400)), ("", "4"), ("", ""), ("4", "\u0000\u0001\u0002"),
         ("4", "\U0001F600"), ("9" * 400, "9" * 400), ("9" * 400, "9" * 399 + "8"), ("4", "4\n\n4"), ("4", "\n4\n"), ("4", "\t4 ")]



def verdicts(groups):
    """{(truth, answer): (verdict, reason)}, from (verdict, reason, lines of pairs)."""
    return {pair: (verdict, reason) for verdict, reason, lines in groups for pair in pairs(lines)}


OWN = verdicts([
    (0, "an equation between numbers that is false says nothing", r"""
4 <> 1=4 <> 1=2=4 <> x=1=4
7 <> 1=2=7 <> 6=7 <> x=6=7
"""),
    (0, "it names another candidate, or more than a number and its unit", r"""
4 <> 4 \text{ (or 5)} <> 4\ldots
3 <> 2 \text{ or } \boxed{3} <> 3 \pm 0 <> 2 \Rightarrow 3
5\text{ hours} <> 5\text{ hours and } 3\text{ minutes}
"""),
    (0, "a ratio is no quotient, nor a time: its parts are compared", r"""
4 <> 4:1
\frac{1}{2} <> 1:2
3:4 <> 3/4 <> 0.75 <> 6:8
"""),
    (0, "another unit, time of day or base", r"""
11:00 \text{ a.m.} <> 11:00 \text{ p.m.}
1010_2 <> 1010_3
4210_{5} <> 4210_6
5 \text{ cm} <> 5 \text{ m} <> 5\text{ inches} <> 5\text{ cm}^2
36 \text{ cm}^2 <> 36 \text{ cm}
5\text{ hours} <> 5\text{ minutes}
"""),
    (0, "a letter alone behind a number is a variable, in capitals another one", r"""
5 <> 5 m <> 5m
5\text{ hours} <> 5 h
3x <> 3X
x^2+1 <> X^2+1
"""),
    (0, "a set, a tuple and a list are different things, a set of one element is that element's", r"""
\{1,2,3\} <> (1,2,3) <> [1,2,3]
(1,2) <> \{1,2\}
"""),
    (0, "a number written with more digits is another one; sympy rounds to six", r"""
0.000012 <> 0.0000120001 <> 0.0000121
"""),
    (0, "an interval is compared as such: with its brackets, and not with an inequality", r"""
(-\infty, 3] <> [-\infty,3]
(-\infty,\infty) <> [-\infty,\infty]
3 <> [3,3]
x>3 <> (3,\infty)
"""),
    (0, "without its degree sign the argument is in radians", r"""
\sin 30^\circ <> \sin 30
"""),
    (0, "only what an equation defines may be left out", r"""
x+y+z=1 <> 1
"""),
    (0, "not understood", r"""
4 <> \sum 4
3 <> \langle 3 \rangle <> 3}
(-\infty,\infty) <> \mathbb{R}
"""),
    (0, "names of points stand in their order", r"""
\angle ABC <> \angle ACB
"""),
    (1, "a point behind the answer is the sentence's", r"""
4 <> 4.
C <> C.
3 <> 3..
"""),
    (1, "the same in Unicode or plain text", r"""
4 <> 4°
90^\circ <> 90°
2\sqrt{3} <> 2√3
(-\infty, 3] <> (-∞,3]
\infty <> ∞
\pi <> pi
12\pi <> 12pi
\$18.90 <> 18.9 dollars
36 \text{ cm}^2 <> 36 cm^2
\text{June 20} <> June 20
\text{(C)} <> C)
"""),
    (1, "scientific notation as programs write it", r"""
4 <> 4e0
1234 <> 1.234e3
10000 <> 1e4
0.000012 <> 1.2e-5
3.0\times 10^8 <> 3e8
7 \times 10^{-3} <> 7e-3 <> 7\times10^-3
"""),
    (1, "thousands with a thin space between them", r"""
1234 <> 1\,234
"""),
    (1, "the same value", r"""
\frac{1}{2} <> \sin 30^\circ
-\frac{2}{3} <> -0.\overline{6}
2\sqrt{3} <> 2\cdot 3^{0.5}
\sqrt[3]{2} <> \sqrt[3]2
\frac{\sqrt{2}}{2} <> \cos 45^\circ
i <> 1i
0.1+0.2 <> 3/10
0.\overline{3} <> \frac{1}{3} <> 0.\bar{3}
\sin 30^\circ <> \frac{1}{2} <> 0.5 <> \cos 60^\circ
2^{100} <> 1.2676506\times 10^{30}
\frac{a}{b} <> \frac ab
\tan^2\theta <> \sin^2\theta/\cos^2\theta
[2,5] <> [2;5]
"""),
    (0, "a list of one thing over and over", "4 <> " + ",".join(["4"] * 400)),
    (1, "the largest or smallest of a set, a greatest divisor, a least multiple, however they are written", r"""
\max(3,5) <> \max\{3,5\} <> \operatorname{max}(3,5) <> max(3,5)
5 <> \max\{5\} <> \max\{3,5,4\}
\max(a,b) <> \max\{a,b\}
6 <> \text{gcd}(12,18) <> gcd(12,18) <> \gcd\{12,18\}
12 <> \text{lcm}(4,6) <> \mathrm{lcm}(4,6) <> lcm(4,6)
\operatorname{lcm}(a,b) <> \text{lcm}(a,b)
"""),
    (0, "divisors and multiples of other numbers", r"""
\gcd(m,n) <> \gcd(m,k) <> 1
\operatorname{lcm}(a,b) <> ab
"""),
    (1, "the set without elements", r"""
\{\} <> \varnothing <> \{ \}
\emptyset <> \varnothing <> \{ \}
"""),
    (1, "powers too large for the grader", r"""
7^{7^{7}} <> 7^{823543}
"""),
    (0, "half of it", r"""
2^{-2004} <> 2^{-2005}
"""),
    (1, "a percent sign may be left out, whatever the truth counts", r"""
\$18.90 <> 18.90\%
"""),
])


GSM8K = [(truth, completion) for truth, completions in [
    ("18", ["#### 18", "She makes $18.\n#### 18", "#### 18.0", "#### $18", "#### 18 dollars", "#### 18.", "####18", "### 18", "#### eighteen", "18", "$18",
            "18.", "The answer is 18.", "The answer is: 18", "The answer is $18.00.", "Answer: 18", "so 18 it is", "\\boxed{18}", "$\\boxed{18}$",
            "#### 17", "#### 1 8", "#### 18 or 19", "18 or 19", "17 or 18", "#### -18", "-18", "#### 180", "#### 1.8", "", "####", "#### ",
            "16 - 3 - 4 = 9 eggs, 9 * 2 = 18", "9 * 2 = 18 dollars every day at the market.", "#### 18\n#### 19", "#### 19\n#### 18",
            "#### 18\n\nQuestion: 3 + 4?\n#### 7", "The answer is 18. There were 16 eggs.", "The answer is 16. No, the answer is 18.", "#### 9*2 = 18",
            "#### 9 * 2 = 18", "#### x = 18", "#### **18**", "**18**", "#### \\$18", "#### 18%", "#### 18,", "#### 18!", "#### 18x", "#### 18th", "#### 1e1",
            "#### \\boxed{18}", "\\boxed{18 \\text{ dollars}}", "\\boxed{17} and then 18", "17 \\boxed{18} 19", "\\boxed{}", "\\boxed{18", "#### 36/2",
            "#### eighteen (18)", "#### 18 (not 19)", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18", "#### 17, 18", "#### 18, 17", "#### 17\n18",
            "0x12", "#### 0x12", "#### 018", "#### +18", "#### 18.00", "#### 18.50", "#### 17.9999999", "#### 18.0000001"]),
    ("1200", ["#### 1200", "#### 1,200", "1,200", "$1,200", "$1,200.00", "#### 1,200.00", "#### 1.200", "#### 12,00", "#### 1200.", "It costs $1,200 a year.",
              "#### 1 200", "1,200.", "#### 1,2,0,0", "1,200,000", "#### 1200000", "#### 1.2e3", "#### 1.2k", "#### -1,200", "10-1200", "10 - 1,200",
              "the range 1000-1200", "5,1200", "1,200 and 3"]),
    ("-5", ["#### -5", "-5", "#### 5", "it falls to -5", "10-5", "10 - 15 = -5", "#### - 5", "#### −5", "#### -5.0", "minus 5", "3-5", "(-5)", "-$5", "$-5"]),
    ("0.5", ["#### 0.5", "#### .5", "#### 1/2", "#### 0.50", "0.5", ".5", "half", "#### 50%", "1/2", "#### 0,5", "#### \\frac{1}{2}"]),
    ("75", ["#### 75%", "75%", "\\boxed{75\\%}", "#### 0.75", "#### 75 for 3 days", "75 for 3 days", "Answer: $75, not 80", "the answer is 75, and 3 are left"]),
] for completion in completions] + [
    ("18", "#### " + "9" * 1000), ("18", "9" * 1000), ("18", "#### " * 150 + "18"), ("18", "(" * 1000 + "18"), ("18", "1" * 400 + "." * 400),
    ("18", "\\boxed{" * 150 + "18"), ("18", "-" * 1000 + "18"), ("18", "." * 1000), ("18", "," * 1000), ("18", "answer is " * 100),
    ("18", "\u0000 18"), ("18", "\U0001F600 18"), ("18", "#### \uff11\uff18"), ("18", "#### 18" + " " * 1000)]

OWN_GSM8K = {(truth, completion): (verdict, reason) for verdict, reason, truth, completions in [
    (1, "the same number", "18", ["#### 18.0", "The answer is $18.00.", "#### 018", "#### 18.00", "#### 36/2"]),
    (1, "the same number", "1200", ["$1,200.00", "#### 1,200.00", "#### 1.2e3"]),
    (1, "the same number", "-5", ["#### - 5", "#### −5", "#### -5.0"]),
    (1, "the same number", "0.5", ["#### .5", "#### 1/2", "#### 0.50", ".5", "#### \\frac{1}{2}"]),
    (1, "what it names as its answer counts, not the last number", "18", ["The answer is 18. There were 16 eggs.", "17 \\boxed{18} 19"]),
    (1, "what it names as its answer counts, not the last number", "75", ["Answer: $75, not 80", "the answer is 75, and 3 are left"]),
    (0, "what it names as its answer counts, not the last number", "18", ["\\boxed{17} and then 18", "#### 17, 18", "#### 17\n18"]),
    (0, "the last line with #### counts, as the last box does", "18", ["#### 18\n#### 19", "#### 18\n\nQuestion: 3 + 4?\n#### 7"]),
    (1, "a minus between two numbers is no sign", "1200", ["10-1200", "the range 1000-1200"]),
    (0, "a minus between two numbers is no sign", "-5", ["10-5", "3-5"]),
] for completion in completions}
