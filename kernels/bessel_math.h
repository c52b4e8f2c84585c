// Bessel functions of orders 0 and 1 and the Airy function, the rest of special_math.h (which includes this file at its end).
//
// Sources: DLMF (NIST Digital Library of Mathematical Functions) 10.17 (the modulus of the functions times cosines of their phase, with our
// own fits in place of the asymptotic series), 10.8 and 10.31 (logarithm and power series about 0), 9.5 to 9.7 (Airy). The fits are
// Chebyshev interpolations of exact values; gradlab/ops/bessel_tables.py has the same numbers. Accuracy: a few ulp of the functions'
// amplitude, and of their values below the first zeros, whose factors are taken out.
#ifndef GRADLAB_BESSEL_MATH_H
#define GRADLAB_BESSEL_MATH_H

namespace gradlab {

// ---- the fits, of arguments from -1 to 1 ---------------------------------------------------------------------------------------------

GRADLAB_FUNCTION double fit_j0_near(double u) {
  return horner(u, -3.52449113008727e-16, 1.8688672744978886e-14, -8.404184719394778e-13, 3.163723989196272e-11, -9.781438946726354e-10,
                2.428622038025423e-08, -4.70629166457061e-07, 6.854954847199373e-06, -7.121705240575853e-05, 0.00048768271776558413,
                -0.0019210870437164043, 0.0031873556303932387);
}
GRADLAB_FUNCTION double fit_j1_near(double u) {
  return horner(u, 7.050885612374614e-16, -3.4284868294108665e-14, 1.4012939606655873e-12, -4.7428743918403457e-11,
                1.3002918729585578e-09, -2.811147254461412e-08, 4.625979215164964e-07, -5.51549445959931e-06, 4.42186880710148e-05,
                -0.0002093267221486019, 0.0004323698734106474);
}
GRADLAB_FUNCTION double fit_y0_near(double u) {
  return horner(u, 1.166603953074689e-13, -6.04993694723965e-12, 2.6539975248625817e-10, -9.7209552080454e-09, 2.9142206889637085e-07,
                -6.985504374077061e-06, 0.0001299462909208217, -0.0018028096665503853, 0.01763534538933876, -0.11151682184328655,
                0.38851639956570944, -0.47057636552972876, -0.4326558222855125, 0.4837248578102995);
}
GRADLAB_FUNCTION double fit_y1_near(double u) {
  return horner(u, -2.397782341669183e-13, 1.1462847037754036e-11, -4.6013010745475043e-10, 1.528888444673751e-08,
                -4.1137780795312436e-07, 8.733098315276175e-06, -0.00014141835794484212, 0.0016688031328605528, -0.013433433740818165,
                0.06634695354779145, -0.16312020358118715, 0.09108650838448443, 0.13974939033568806);
}
GRADLAB_FUNCTION double fit_p0_far(double u) {
  return horner(u, -2.235391154912044e-12, 3.6143863492486003e-12, 3.415311542572876e-12, -3.743592980512026e-12,
                -1.3637307914439566e-11, 2.4823644443773408e-11, -3.538662922896775e-11, 9.7250551457765e-11, -2.851794579729694e-10,
                8.562292591841693e-10, -2.8705436149232575e-09, 1.1058301818592053e-08, -5.08643230838394e-08, 2.9759010201737064e-07,
                -2.459963321484891e-06, 3.491730581077085e-05, -0.0013274931272004003, 0.9986347659091991);
}
GRADLAB_FUNCTION double fit_q0_far(double u) {
  return horner(u, 8.561141204555756e-12, -1.2508076456976504e-11, -2.1805674415621824e-11, 2.6853631098267475e-11,
                4.887938606932425e-11, -6.84157949075103e-11, 1.5124462364733147e-11, -6.85705858303615e-11, 2.584878097830186e-10,
                -6.04293829084546e-10, 1.5208164406105877e-09, -4.289354315206942e-09, 1.3297944779036059e-08, -4.639877418605767e-08,
                1.8870283952552904e-07, -9.409874566961783e-07, 6.2391131760670245e-06, -6.33871544273933e-05, 0.0013142139729101605,
                -0.12361496352611864);
}
GRADLAB_FUNCTION double fit_p1_far(double u) {
  return horner(u, 2.368522528186767e-12, -3.837516448159508e-12, -3.5906738400843512e-12, 3.919356832784674e-12,
                1.4551592853265448e-11, -2.6622329676450118e-11, 3.8451893184433864e-11, -1.0595089749231098e-10, 3.117737074105936e-10,
                -9.422147494996673e-10, 3.1849577586739448e-09, -1.2402701962004368e-08, 5.7916678422140156e-08, -3.466719151341159e-07,
                2.9786211051441743e-06, -4.5782806529390985e-05, 0.002241463213917191, 1.0022906462560661);
}
GRADLAB_FUNCTION double fit_q1_far(double u) {
  return horner(u, 1.3206143080854314e-11, -1.9946832309158227e-11, -2.8238891623756554e-11, 3.4118244933315396e-11,
                7.247534834561339e-11, -1.1069083648895406e-10, 7.462088298658045e-11, -2.1767826861085838e-10, 6.545020798796693e-10,
                -1.68026608567492e-09, 4.697491706930299e-09, -1.4660145323596705e-08, 5.164244589339483e-08, -2.1266795418156638e-07,
                1.079885314279598e-06, -7.369927915299274e-06, 7.89809417818545e-05, -0.0018648496218418749, 0.3730474331740802);
}
GRADLAB_FUNCTION double fit_k0_far(double u) {
  return horner(u, -2.3784325357181936e-08, 2.720791665570902e-08, 1.5290053399938993e-07, -1.6738552899793128e-07,
                -4.6055169493597123e-07, 4.835761693267897e-07, 8.37079969744441e-07, -8.386623449242066e-07, -1.0289697462594406e-06,
                9.831071489978764e-07, 8.799046504578672e-07, -7.888900862184987e-07, -5.726676094777936e-07, 4.997104747309902e-07,
                2.0294056802289497e-07, -1.141385992888833e-07, -2.3202854129329047e-07, 3.2220411464413024e-07,
                -4.5160578287500606e-07, 8.599860986689249e-07, -1.6653737675780888e-06, 3.2679117134433693e-06, -6.658994277338526e-06,
                1.4181412054795868e-05, -3.181480563469283e-05, 7.608267047161973e-05, -0.00019727982061389378, 0.0005692398880143064,
                -0.0019084014862734363, 0.008067386548377206, -0.0522790114917577, 1.1901571834152027);
}
GRADLAB_FUNCTION double fit_k1_far(double u) {
  return horner(u, 2.5863255020050868e-08, -2.964328009721701e-08, -1.6612903754172516e-07, 1.8219929809954913e-07,
                5.002196394683789e-07, -5.261865080476922e-07, -9.088111933518854e-07, 9.1213020889202e-07, 1.1170624309986416e-06,
                -1.0692595860290312e-06, -9.545322767894645e-07, 8.570005704916105e-07, 6.225946860783068e-07, -5.452711371747071e-07,
                -2.162657675435287e-07, 1.1699172302245534e-07, 2.6532661955711313e-07, -3.7590847805254936e-07, 5.418683353836388e-07,
                -1.0387350569918995e-06, 2.0295346733984334e-06, -4.033194971020719e-06, 8.342551942919494e-06, -1.8092583795002695e-05,
                4.152315925908098e-05, -0.00010227196572996217, 0.0002760388399705941, -0.000844392741014426, 0.0031120066456231514,
                -0.015852854565988866, 0.18797890654571855, 1.4615569735231244);
}
GRADLAB_FUNCTION double fit_airy_right(double u) {
  return horner(u, 1.3734145387112318e-08, -1.5867977426996478e-08, -8.448501704619215e-08, 9.319265005021801e-08,
                2.440672600234385e-07, -2.578740670001581e-07, -4.2326181481505746e-07, 4.2559667717771653e-07, 4.961625173842385e-07,
                -4.754114448249539e-07, -3.98091684136391e-07, 3.5454913135221857e-07, 2.5228649495423786e-07, -2.253251826653981e-07,
                -5.7246996106037476e-08, 3.2934582627395105e-09, 1.6387702806108886e-07, -2.6252162367611314e-07,
                4.3911688918049464e-07, -8.452285636873627e-07, 1.672609145052581e-06, -3.4146772300958336e-06, 7.285168475437012e-06,
                -1.6384770246661707e-05, 3.931076980077473e-05, -0.00010238171664744266, 0.0002973052348213437, -0.001006930461236271,
                0.004339588401209611, -0.02963773947349148, 1.2178602722774308);
}
GRADLAB_FUNCTION double fit_airy_prime_right(double u) {
  return horner(u, -1.4132250401733105e-08, 1.633906762389987e-08, 8.690714886919929e-08, -9.592575360559377e-08,
                -2.5103480659272513e-07, 2.6540652565368835e-07, 4.352765647864198e-07, -4.379454513016967e-07, -5.102511294414326e-07,
                4.892397395938838e-07, 4.092343915402775e-07, -3.646142425885094e-07, -2.597274994367807e-07, 2.3240082534309744e-07,
                5.775283077534329e-08, -1.3521662226490217e-09, -1.725053081671796e-07, 2.7787007392066937e-07, -4.676564719326272e-07,
                9.030645079571821e-07, -1.7941363776376443e-06, 3.6810745770325144e-06, -7.90123240177274e-06, 1.7905276956266367e-05,
                -4.338170893967134e-05, 0.00011449610403430786, -0.00033895923872115033, 0.001184198521015719, -0.005418679481070416,
                0.04408265385455376, 1.3045297585638045);
}
GRADLAB_FUNCTION double fit_airy_middle(double u) {
  return horner(u, -2.774891150754005e-10, -1.7755584551804916e-10, 6.345356111984914e-09, -1.2248275119062447e-08,
                -4.5048262008726204e-08, 2.752848195186602e-07, -3.4725442985985217e-07, -1.8643304637217125e-06, 9.008309043709776e-06,
                -8.161368383143799e-06, -5.682175871696848e-05, 0.0002170712701422286, -0.00012106896734205718, -0.0012175795761159517,
                0.003591715664961645, -0.0008446052448327042, -0.01706296371379887, 0.03750823735566797, 0.0019211718317922806,
                -0.14025535457984373, 0.21682607981119878, 0.059661365699653884, -0.5596575091805012, 0.5521773248187316,
                0.1973972580756815, -0.7131177118211971, 0.384980944277932);
}
GRADLAB_FUNCTION double fit_airy_prime_middle(double u) {
  return horner(u, 3.9981427198466627e-10, -1.5299654009293126e-09, -2.58367422745631e-09, 2.9461312697494662e-08,
                -5.960341653998123e-08, -1.5459210959976286e-07, 1.1368950623385378e-06, -1.8492036424559954e-06,
                -5.6529933535131815e-06, 3.2957460709755044e-05, -4.229967972311955e-05, -0.00014809783517687555, 0.0006820486375766705,
                -0.000663313099009331, -0.0026193772191378728, 0.009419213026467947, -0.006637574065183682, -0.02856470664645669,
                0.07862973178678825, -0.03914276896247969, -0.16435797458602386, 0.33649148574993737, -0.13024938866153443,
                -0.35324199252228033, 0.5200293041581031, -0.22926197224974765);
}
GRADLAB_FUNCTION double fit_airy_p(double u) {
  return horner(u, -2.0243827123556774e-11, 2.5479287934777046e-11, 7.339785674506753e-11, -8.379178155458001e-11,
                -1.4249968092313064e-10, 1.585289029437822e-10, 1.1901098129787627e-10, -9.982165275399416e-11, -1.7013764705833002e-10,
                2.4283900097780483e-10, -3.002478918221597e-10, 7.224033576044564e-10, -1.7970026977578706e-09, 4.580475015657474e-09,
                -1.2843080550340977e-08, 4.057896370218596e-08, -1.4957031388745593e-07, 6.809741904006554e-07, -4.220363314898431e-06,
                4.290526094479174e-05, -0.0011183482036312522, 0.9988336344217255);
}
GRADLAB_FUNCTION double fit_airy_q(double u) {
  return horner(u, -1.2240130676224066e-10, 1.4374598204181048e-10, 5.315309925321741e-10, -5.795790313834997e-10,
                -1.1197043746849514e-09, 1.1629896333520935e-09, 1.2791197052430294e-09, -1.1961947773455842e-09,
                -1.1460831061373412e-09, 1.143745031375795e-09, 4.9962755455982416e-11, 4.78383765225593e-10, -1.969686956309823e-09,
                3.941278671443678e-09, -8.528413268938914e-09, 2.051135151535589e-08, -5.342131484378625e-08, 1.5388533013729328e-07,
                -5.056602789898151e-07, 1.982732129458196e-06, -9.986704018589906e-06, 7.380475101400045e-05, -0.0010592991304092985,
                0.06829862152855275);
}
GRADLAB_FUNCTION double fit_airy_r(double u) {
  return horner(u, 2.0633975535600388e-11, -2.5983707085892646e-11, -7.477641667062507e-11, 8.539864752129478e-11,
                1.4521791741501535e-10, -1.6165426931150521e-10, -1.2107973260505401e-10, 1.0141968078275685e-10,
                1.7404613312464363e-10, -2.49071322727557e-10, 3.098122760504457e-10, -7.458615896070037e-10, 1.8575557823213142e-09,
                -4.7455237221882815e-09, 1.3343307115433087e-08, -4.231389281314874e-08, 1.567577147648555e-07, -7.19127216284097e-07,
                4.51385108129834e-06, -4.709552535722678e-05, 0.0013308266357368473, 1.0013833756069925);
}
GRADLAB_FUNCTION double fit_airy_s(double u) {
  return horner(u, -1.463684973838443e-10, 1.7549797956680552e-10, 5.899531745372104e-10, -6.51507592509925e-10,
                -1.1839093801020141e-09, 1.2508814326126627e-09, 1.2169689619704146e-09, -1.1163234817187237e-09,
                -1.166056298430545e-09, 1.2855288371527974e-09, -4.959645812330826e-10, 1.5157597534892754e-09, -4.059912723611891e-09,
                8.92811335855996e-09, -2.1211921750469993e-08, 5.535911428151585e-08, -1.6001666732676843e-07, 5.280122116724612e-07,
                -2.0828545244979052e-06, 1.0591076716995714e-05, -7.964498968032077e-05, 0.0011921676003399365, -0.09593695446780576);
}

GRADLAB_FUNCTION double fit_i0_far(double u) {
  return horner(u, -2.0260604287413626e-11, 9.36508689281819e-11, 1.5279202694981569e-10, -6.633287112547084e-10,
                -5.715843864202709e-10, 2.1968921378829006e-09, 1.5200816953924232e-09, -4.575553424534973e-09, -3.505966530879332e-09,
                6.560138746917057e-09, 7.552583062123384e-09, -5.0381064879032845e-09, -1.340891754008974e-08, -6.8493381882867694e-09,
                7.554691881248808e-09, 2.1566251453104354e-08, 3.932584334552952e-08, 8.872034383314144e-08, 2.9735985885673923e-07,
                1.4838476651250266e-06, 1.1143033790932038e-05, 0.00013621607438984735, 0.0033605519836678614, 0.4021765094450081);
}
GRADLAB_FUNCTION double fit_i1_far(double u) {
  return horner(u, 6.305965197150057e-11, 1.8515118828852956e-11, -4.758818838703853e-10, -1.4011625179770627e-10,
                1.6848984479705146e-09, 5.295625441161261e-10, -3.794670896208339e-09, -1.4387250533041013e-09, 6.242741219786445e-09,
                3.4262341490077958e-09, -7.888351507862078e-09, -7.64239413436356e-09, 5.974437608040264e-09, 1.4034238782067183e-08,
                6.734464815301592e-09, -8.427766093735185e-09, -2.337392820814264e-08, -4.312917729178349e-08, -1.0001288294864884e-07,
                -3.483855761044295e-07, -1.8349101326980946e-06, -1.5038547200567216e-05, -0.00021923576383388928,
                -0.009749577193235737, 0.38939845902587233);
}
GRADLAB_FUNCTION double bessel_argument(double t) { return 2.0 * t - 1.0; }  // of a fit, for t from 0 to 1

GRADLAB_FUNCTION double j0_near(double a) {
  const double zeros = ((a - 2.404825557695773) + 1.176691651530894e-16) * (a + 2.404825557695773) *
                       ((a - 5.520078110286311) - 8.088597146146722e-17) * (a + 5.520078110286311);
  return zeros * fit_j0_near(bessel_argument(a * a / 25.0));
}
GRADLAB_FUNCTION double j1_near(double a) {
  const double zeros = ((a - 3.8317059702075125) + 1.5269184090088067e-16) * (a + 3.8317059702075125) *
                       ((a - 7.015586669815619) + 9.414165653410389e-17) * (a + 7.015586669815619);
  return a * zeros * fit_j1_near(bessel_argument(a * a / 25.0));
}
// J (or Y) of order 0 or 1 of a > 5: sqrt(2 / (pi a)) (P cos c - Q sin c), c = a - pi / 4 or a - 3 pi / 4; the cosine and sine of c by
// those of a, so that no phase is rounded. Y has P sin c + Q cos c.
GRADLAB_CALLED double bessel_far(int order, double a, bool second) {
  if (isinf(a)) return 0.0;
  const double inverse = 5.0 / a, u = bessel_argument(inverse * inverse), c = cos(a), s = sin(a);
  const double p = order ? fit_p1_far(u) : fit_p0_far(u), q = (order ? fit_q1_far(u) : fit_q0_far(u)) / a;
  const double cosine = order ? s - c : c + s, sine = order ? -(s + c) : s - c;
  return (second ? p * sine + q * cosine : p * cosine - q * sine) / sqrt(special_pi * a);
}
GRADLAB_CALLED double bessel_j0(double x) {
  const double a = abs(x);
  return a > 5.0 ? bessel_far(0, a, false) : j0_near(a);
}
GRADLAB_CALLED double bessel_j1(double x) {
  const double a = abs(x), found = a > 5.0 ? bessel_far(1, a, false) : j1_near(a);
  return signbit(x) ? -found : found;
}
GRADLAB_CALLED double bessel_y0(double x) {
  if (x > 5.0) return bessel_far(0, x, true);
  if (x == 0.0) return -infinity<double>();
  if (!(x > 0.0)) return infinity<double>() - infinity<double>();
  return 0.63661977236758134308 * log(x) * j0_near(x) + fit_y0_near(bessel_argument(x * x / 25.0));
}
GRADLAB_CALLED double bessel_y1(double x) {
  if (x > 5.0) return bessel_far(1, x, true);
  if (x == 0.0) return -infinity<double>();
  if (!(x > 0.0)) return infinity<double>() - infinity<double>();
  return 0.63661977236758134308 * (log(x) * j1_near(x) - 1.0 / x) + x * fit_y1_near(bessel_argument(x * x / 25.0));
}
// e^-a I(a), or I(a), of order 0 or 1 and a >= 0: up to 8 the power series 10.25.2, whose terms are all
// positive, beyond it a fit of sqrt(a) e^-a I.
GRADLAB_CALLED double bessel_i(int order, double a, bool scaled) {
  if (a <= 8.0) {
    const double t = 0.25 * a * a;
    double term = order ? 0.5 * a : 1.0, sum = term;
    for (int k = 1; term > 1e-17 * sum; ++k) sum += term *= t / (double(k) * (k + order));
    return scaled ? sum * exp(-a) : sum;
  }
  if (!(a < infinity<double>())) return a != a ? a : scaled ? 0.0 : a;
  const double u = bessel_argument(8.0 / a), found = (order ? fit_i1_far(u) : fit_i0_far(u)) / sqrt(a);
  const double half = scaled ? 1.0 : exp(0.5 * a);  // in two steps: e^a overflows before I(a) does
  return found * half * half;
}
GRADLAB_FUNCTION double bessel_i0(double x) { return bessel_i(0, abs(x), false); }
GRADLAB_FUNCTION double bessel_i0e(double x) { return bessel_i(0, abs(x), true); }
GRADLAB_FUNCTION double bessel_i1(double x) { return copysign(bessel_i(1, abs(x), false), x); }
GRADLAB_FUNCTION double bessel_i1e(double x) { return copysign(bessel_i(1, abs(x), true), x); }
// K of order 0 or 1, or e^x K: up to 1 the series 10.31.1 and 10.31.2, whose terms are all of one sign.
GRADLAB_CALLED double bessel_k(int order, double x, bool scaled) {
  if (x == 0.0) return infinity<double>();
  if (!(x > 0.0)) return infinity<double>() - infinity<double>();
  if (isinf(x)) return 0.0;
  if (x > 1.0) {
    const double u = bessel_argument(1.0 / x);
    return (order ? fit_k1_far(u) : fit_k0_far(u)) / sqrt(x) * (scaled ? 1.0 : exp(-x));
  }
  const double level = -log(0.5 * x) - 0.57721566490153286061, t = 0.25 * x * x;
  double term = 1.0, harmonic = order ? 0.5 : 0.0, sum = level + harmonic;
  for (int k = 1; k < 11; ++k) {
    term *= t / (double(k) * (k + order));
    harmonic += order ? 0.5 / k + 0.5 / (k + 1.0) : 1.0 / k;
    sum += term * (level + harmonic);
  }
  const double found = order ? 1.0 / x - 0.5 * x * sum : sum;
  return scaled ? found * exp(x) : found;
}
GRADLAB_FUNCTION double bessel_k0(double x) { return bessel_k(0, x, false); }
GRADLAB_FUNCTION double bessel_k0e(double x) { return bessel_k(0, x, true); }
GRADLAB_FUNCTION double bessel_k1(double x) { return bessel_k(1, x, false); }
GRADLAB_FUNCTION double bessel_k1e(double x) { return bessel_k(1, x, true); }
GRADLAB_FUNCTION double spherical_j0(double x) { return x == 0.0 ? 1.0 : isinf(x) ? 0.0 : sin(x) / x; }

// Ai (or its derivative): a fit about 0, to the right K of order 1/3 (2/3) by 9.6.2 and 9.6.3, to the left modulus and phase as above.
GRADLAB_CALLED double airy(double x, bool derivative) {
  if (x != x) return x;
  const double z = sqrt(abs(x)), zeta = (2.0 / 3.0) * abs(x) * z;
  if (x > 1.35) {
    if (zeta > 800.0) return derivative ? -0.0 : 0.0;
    const double u = bessel_argument(1.0 / zeta), decay = exp(-zeta) / sqrt(zeta);
    if (derivative) return -x * 0.18377629847393068 * fit_airy_prime_right(u) * decay;
    return 0.18377629847393068 * z * fit_airy_right(u) * decay;
  }
  if (x >= -3.25) {
    const double u = (x + 0.95) / 2.35;
    if (derivative)
      return ((x + 1.018792971647471) + 2.0609116444448518e-17) * ((x + 3.2481975821798366) - 2.435739819073974e-17) *
             fit_airy_prime_middle(u);
    return ((x + 2.338107410459767) + 3.912260409818305e-17) * fit_airy_middle(u);
  }
  if (isinf(x)) return derivative ? infinity<double>() - infinity<double>() : 0.0;
  const double inverse = 3.9 / zeta, u = bessel_argument(inverse * inverse), root = sqrt(z), c = cos(zeta), s = sin(zeta);
  if (derivative) return ((s - c) * fit_airy_r(u) - (c + s) * (fit_airy_s(u) / zeta)) * root * 0.39894228040143267794;
  return ((c + s) * fit_airy_p(u) + (s - c) * (fit_airy_q(u) / zeta)) / root * 0.39894228040143267794;
}
GRADLAB_FUNCTION double airy_ai(double x) { return airy(x, false); }
GRADLAB_FUNCTION double airy_ai_prime(double x) { return airy(x, true); }

GRADLAB_FUNCTION float bessel_i0(float x) { return float(bessel_i0(double(x))); }
GRADLAB_FUNCTION float bessel_i0e(float x) { return float(bessel_i0e(double(x))); }
GRADLAB_FUNCTION float bessel_i1(float x) { return float(bessel_i1(double(x))); }
GRADLAB_FUNCTION float bessel_i1e(float x) { return float(bessel_i1e(double(x))); }
GRADLAB_FUNCTION float bessel_j0(float x) { return float(bessel_j0(double(x))); }
GRADLAB_FUNCTION float bessel_j1(float x) { return float(bessel_j1(double(x))); }
GRADLAB_FUNCTION float bessel_y0(float x) { return float(bessel_y0(double(x))); }
GRADLAB_FUNCTION float bessel_y1(float x) { return float(bessel_y1(double(x))); }
GRADLAB_FUNCTION float bessel_k0(float x) { return float(bessel_k0(double(x))); }
GRADLAB_FUNCTION float bessel_k0e(float x) { return float(bessel_k0e(double(x))); }
GRADLAB_FUNCTION float bessel_k1(float x) { return float(bessel_k1(double(x))); }
GRADLAB_FUNCTION float bessel_k1e(float x) { return float(bessel_k1e(double(x))); }
GRADLAB_FUNCTION float spherical_j0(float x) { return float(spherical_j0(double(x))); }
GRADLAB_FUNCTION float airy_ai(float x) { return float(airy_ai(double(x))); }
GRADLAB_FUNCTION float airy_ai_prime(float x) { return float(airy_ai_prime(double(x))); }

}  // namespace gradlab

#endif
